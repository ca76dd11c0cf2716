"""Models of transformers whose growth is measured beside that of the mixers: one layer of each, with its feed-forward
block and its embeddings (of a Funnel Transformer, which pools between layers, two). RWKV has no single layer: its
weights are drawn by a formula that divides by the number of all others.

Widths are those of the mixers' measurement, 256 with 4 heads, and windows, blocks and landmarks of 64 tokens where a
model has some. Shape letters: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LAYER_WIDTH, LAYER_HEADS, BLOCK_TOKENS = 256, 4, 64
BERT_SIZES: Mapping[str, object] = {
    "vocab_size": 100,
    "hidden_size": LAYER_WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": LAYER_HEADS,
    "intermediate_size": LAYER_WIDTH,
}
"""Entries of a config of BERT's kind."""


def of_two_stacks(length: int) -> dict[str, object]:
    """Return the sizes of a model that reads and writes, in one layer each."""
    own = {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": LAYER_HEADS,
        "decoder_attention_heads": LAYER_HEADS,
    }
    wide = {"encoder_ffn_dim": LAYER_WIDTH, "decoder_ffn_dim": LAYER_WIDTH, "d_model": LAYER_WIDTH, "vocab_size": 100}
    places = {"max_encoder_position_embeddings": length + 2 * BLOCK_TOKENS, "max_decoder_position_embeddings": 64}
    return {**own, **wide, **places, "attention_window": [2 * BLOCK_TOKENS]}


CONFIGS: dict[str, Callable[[int], dict[str, object]]] = {
    "bert": lambda length: {**BERT_SIZES, "max_position_embeddings": length},
    "longformer": lambda length: {
        **BERT_SIZES,
        "max_position_embeddings": length + 2,
        "attention_window": [2 * BLOCK_TOKENS],
    },
    "led": of_two_stacks,
    "longt5": lambda length: {
        "vocab_size": 100,
        "d_model": LAYER_WIDTH,
        "d_kv": LAYER_WIDTH // LAYER_HEADS,
        "d_ff": LAYER_WIDTH,
        "num_layers": 1,
        "num_heads": LAYER_HEADS,
        "local_radius": BLOCK_TOKENS,
    },
    "big_bird": lambda length: {
        **BERT_SIZES,
        "max_position_embeddings": length,
        "attention_type": "block_sparse",
        "block_size": BLOCK_TOKENS,
    },
    "nystromformer": lambda length: {
        **BERT_SIZES,
        "max_position_embeddings": length,
        "num_landmarks": BLOCK_TOKENS,
        "segment_means_seq_len": length,
    },
    "fnet": lambda length: {**BERT_SIZES, "max_position_embeddings": length},
    "funnel": lambda length: {
        "vocab_size": 100,
        "d_model": LAYER_WIDTH,
        "n_head": LAYER_HEADS,
        "d_head": LAYER_WIDTH // LAYER_HEADS,
        "d_inner": LAYER_WIDTH,
        "block_sizes": [1, 1],
        "architectures": ["FunnelBaseModel"],
    },
    "convbert": lambda length: {**BERT_SIZES, "embedding_size": LAYER_WIDTH, "max_position_embeddings": length},
    "yoso": lambda length: {**BERT_SIZES, "max_position_embeddings": length, "use_expectation": True},
    "mamba": lambda length: {"vocab_size": 100, "hidden_size": LAYER_WIDTH, "num_hidden_layers": 1},
}
"""By model type, the config of one layer for so many tokens. A Nyströmformer's segments depend on their number."""
ENCODERS = ("led", "longt5")
"""Those of which the encoder alone is measured."""


def call_of_model(model_type: str, length: int) -> Callable[[], object]:
    """Return a call of one layer of a model on one text of so many tokens."""
    import torch
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **CONFIGS[model_type](length))
    model: Any = AutoModel.from_config(config).eval()
    model = model.get_encoder() if model_type in ENCODERS else model
    ids_BT = torch.arange(length)[None] % 90 + 5
    return lambda: model(input_ids=ids_BT)[0]
