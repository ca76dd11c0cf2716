"""A folder that every room shares, made in milliseconds: a random classifier with a real tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS = "the a film song meal was is very not good bad fine poor truly but".split()
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def tiny_tokenizer() -> Any:
    """Return a real tokenizer of a few words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    pieces = Tokenizer(WordPiece({token: index for index, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    pieces.pre_tokenizer = Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    pieces.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    return PreTrainedTokenizerFast(tokenizer_object=pieces, **special)


def write_classifier(folder: Path, *, seed: int = 0, positions: int = 32, **config: Any) -> Path:
    """Write a random BERT classifier of 16 hidden units; its weights are large, so that its answers differ from row to
    row."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    tiny_tokenizer().save_pretrained(folder)
    torch.manual_seed(seed)
    shape = {
        "vocab_size": len(TOKENS),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "initializer_range": 0.5,
    }
    BertForSequenceClassification(BertConfig(max_position_embeddings=positions, **shape | config)).save_pretrained(
        folder
    )
    return folder


def sentences(count: int) -> list[str]:
    """Return sentences of very different lengths."""
    return [
        " ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 2 + number % 12)) for number in range(count)
    ]


def logits_of(
    folder: Path, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, task_type: str = "classification"
) -> np.ndarray:
    """Return the logits [N, C] of a model folder."""
    from tasks.scoring.predict import outputs_of

    return outputs_of(folder, texts, pairs, max_length, task_type=task_type)["logits"]
