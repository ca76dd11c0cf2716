"""Models of the shapes that the literature compares, with random weights: speed does not ask what a model knows."""

from __future__ import annotations

from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

SHAPES = {
    "12x768": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "6x384": {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536},
    "3x384": {"num_hidden_layers": 3, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536},
    "4x312": {"num_hidden_layers": 4, "hidden_size": 312, "num_attention_heads": 12, "intermediate_size": 1200},
}


def classifier(shape: str, *, kernel: str = "eager", dropout: float = 0.0) -> Any:
    """Return a BERT classifier of two classes; without dropout, every contestant computes the same."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, attn_implementation=kernel, **SHAPES[shape]
    )
    return BertForSequenceClassification(config)
