"""Every family of encoders, real but tiny: random weights and a small real tokenizer, made in milliseconds.

The tokenizers are saved as anybody might have saved them: none says on which side it pads or what its model takes,
which the engine must find out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.tiny import WORDS

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
AS_BERT = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
AS_ROBERTA = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
AS_XLNET = {
    "unk_token": "<unk>",
    "cls_token": "<cls>",
    "sep_token": "<sep>",
    "mask_token": "<mask>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
}
FRAMES = {
    "roberta": ("<s> $A </s>", "<s> $A </s> </s> $B:1 </s>:1"),
    "xlnet": ("$A <sep> <cls>:2", "$A <sep> $B:1 <sep>:1 <cls>:2"),
}
BERT_LIKE = {
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
SIZES: dict[str, dict[str, Any]] = {
    "bert": BERT_LIKE,
    "roberta": {**BERT_LIKE, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    "distilbert": {"dim": 16, "n_layers": 4, "n_heads": 4, "hidden_dim": 32, "max_position_embeddings": 64},
    "electra": {**BERT_LIKE, "embedding_size": 8},
    "albert": {**BERT_LIKE, "embedding_size": 8},
    "mobilebert": {
        **BERT_LIKE,
        "embedding_size": 8,
        "intra_bottleneck_size": 8,
        "num_feedforward_networks": 2,
    },
    "deberta-v2": {
        **BERT_LIKE,
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 8,
        "share_att_key": True,
        "conv_kernel_size": 3,
        "norm_rel_ebd": "layer_norm",
    },
    "modernbert": {
        **BERT_LIKE,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "local_attention": 4,
    },
    "xlnet": {"d_model": 16, "n_layer": 4, "n_head": 4, "d_inner": 32, "pad_token_id": 5},
}
NAMES = sorted(SIZES)


def write_tiny(family: str, folder: Path, *, more: Sequence[str] = (), **changes: Any) -> Path:
    """Write a random encoder of a family, with its head for masked words (XLNet: for next words), and a tokenizer that
    may know more words."""
    tokenizer = tiny_tokenizer(family, more)
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **{"vocab_size": len(tokenizer), **SIZES[family], **changes})
    head = transformers.AutoModelForCausalLM if family == "xlnet" else transformers.AutoModelForMaskedLM
    model = head.from_config(config)
    with torch.no_grad():  # as they are drawn, weights are so small that no two texts would get different answers
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.15)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_tokenizer(family: str, more: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Return word pieces of letters, a few words and ``more``, in the frame of a family."""
    specials = {"roberta": AS_ROBERTA, "xlnet": AS_XLNET}.get(family, AS_BERT)
    tokens = list(dict.fromkeys([*specials.values(), *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS, *more]))
    numbers = {token: number for number, token in enumerate(tokens)}
    made = Tokenizer(models.WordPiece(numbers, unk_token=specials["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    single, pair = FRAMES.get(family, ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"))
    made.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(token, numbers[token]) for token in specials.values()]
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, **specials)
