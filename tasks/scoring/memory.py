"""The memory of a graph that continues texts: keys and values of the tokens that it has read, by layer.

A graph takes them as inputs ``past_0_key``, ``past_0_value``, … and returns them, with those of the tokens that it has
just read behind them, as outputs ``present_0_key``, …; at the beginning of a text they have no tokens. Shape letters:
B batch, H heads, P tokens that were read before, D size of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

PAST, PRESENT = "past_", "present_"
NEXT_WORD = "next_logits"
"""The output with the logits of the token behind the last one [B, V]."""
Memory = Mapping[str, Sequence[int]]
"""Heads and their size, by the name of an input, as the card of an export states them."""


def past_names(layers: int) -> list[str]:
    """Return the names of the inputs of a graph with so many layers."""
    return [f"{PAST}{layer}_{part}" for layer in range(layers) for part in ("key", "value")]


def presents(memory: Memory) -> list[str]:
    """Return the names of the outputs that are the next inputs."""
    return [PRESENT + name.removeprefix(PAST) for name in memory]


def nothing_read(memory: Memory, batch: int) -> dict[str, np.ndarray]:
    """Return the memory [B, H, 0, D] at the beginning of texts."""
    return {name: np.zeros((batch, heads, 0, size), np.float32) for name, (heads, size) in memory.items()}


def keys_and_values(cache: Any) -> list[Any] | None:
    """Return the parts of a cache of transformers, keys and values of each layer [B, H, P, D]; None of one that holds
    anything else than those of all tokens, such as those of a window."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    layers: list[Any] = cache.layers if isinstance(cache, DynamicCache) else [None]
    if any(type(layer) is not DynamicLayer for layer in layers):
        return None
    return [part for layer in layers for part in (layer.keys, layer.values)]


def bytes_of_a_token(memory: Memory) -> int:
    """Return how much memory each token of a text takes."""
    return sum(4 * heads * size for heads, size in memory.values())
