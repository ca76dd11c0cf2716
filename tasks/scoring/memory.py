"""The memory of a graph that writes, or continues texts, keys and values of the tokens that it has read, by layer; and
the rules by which it writes.

A graph takes them as inputs ``past_0_key``, ``past_0_value``, … and returns them, with those of the tokens that it has
just read behind them, as outputs ``present_0_key``, …; at the beginning of a text they have no tokens. A graph that
reads a source has those of the source, too: ``source_0_key``, …, and ``present_source_0_key``, …. Shape letters: B
batch, H heads, P tokens that were read before, D size of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np

PAST, READ_SOURCE, PRESENT = "past_", "source_", "present_"
NEXT_WORD = "next_logits"
"""The output with the logits of the token behind the last one [B, V]."""
Memory = Mapping[str, Sequence[int]]
"""Heads and their size, by the name of an input, as the card of an export states them."""


class WritingRules(TypedDict):
    """The settings of a generation config that change which text is written. Words are ids of the vocabulary."""

    begin: int
    """The word that stands before a text; of a language model, nothing asks for it."""
    ends: list[int]
    """The words that end one."""
    never: list[int]
    """Words that are never written."""
    first: int | None
    """The first word, if it is prescribed."""
    last: int | None
    """The word at the place where a text becomes as long as allowed, if it is prescribed."""
    no_repeat: int
    """A run of so many words occurs once; 0: runs may repeat."""
    repetition_penalty: NotRequired[float]
    """By how much words that were read or written before are less likely; 1 and nothing: by nothing."""
    normalized: bool
    """Whether probabilities of the words that are left sum to 1."""
    beams: int
    length_penalty: float
    most: int
    """Beams, length penalty and tokens of a text, where nothing else is asked for."""


def past_names(layers: int, of: str = PAST) -> list[str]:
    """Return the names of the inputs of a graph with so many layers: those of the text, or of the source."""
    return [f"{of}{layer}_{part}" for layer in range(layers) for part in ("key", "value")]


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
