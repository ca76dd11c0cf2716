"""DeBERTa, second version (He et al. 2020, arXiv:2006.03654): attention with terms of relative position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.architectures.architecture import HIDDEN, OWN_ATTENTION, STATES, TWO_MAPS, Architecture


def pooler_and_heads(config: Any, kept: Sequence[int]) -> None:
    """Set the width of the pooler to the model's, and the size of a head to its share of it."""
    config.pooler_hidden_size = config.hidden_size
    if hasattr(config, "attention_head_size"):
        config.attention_head_size = config.hidden_size // config.num_attention_heads


DEBERTA_V2 = Architecture(
    feed_forward=TWO_MAPS,
    follow=pooler_and_heads,
    signals=(HIDDEN, STATES),
    because=OWN_ATTENTION,
    state_maps={
        "query": "attention.self.query_proj",
        "key": "attention.self.key_proj",
        "value": "attention.self.value_proj",
    },
)
