"""Units of a row that have an answer each, and arrays of rows that differ in their number of units.

The units of a text, such as the words of a sentence, are found among its tokens; it is read in windows where it is
longer than a model's input. Units that are read apart, such as the options of a question, are a pair of texts each;
those of one row stand in one batch while a model learns. Shape letters: N rows, U units of all rows, T tokens of a
window, C outputs of a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

OVERLAP = 4
"""Neighbouring windows share one token in this many."""


@dataclass(frozen=True)
class Units:
    """The units of a task type whose rows have several answers."""

    count: Callable[[str], int]
    """Returns the number of units of a text."""
    places: Callable[[str, Sequence[np.ndarray]], list[np.ndarray]]
    """Returns by window of a text the number of the unit that each token answers [T], -1 for none, from the places of
    its tokens in the text [T, 2]; a unit is answered once at most."""
    targets: Callable[[Any, int], list[int]]
    """Returns the targets of a row's units from its label, which may be missing, and their number."""
    prepared: Callable[[str], str]
    """Returns a text of a user in the form of the texts that a model has learned from."""


@dataclass(frozen=True)
class Parts:
    """The units of a task type that reads each unit of a row as a pair of texts of its own."""

    pairs: Callable[[str, str], list[tuple[str, str]]]
    """Returns the pair of texts of each unit, from the text and the second text of a row."""
    targets: Callable[[int, Any, int], list[int]]
    """Returns the targets of a row's units from its id, its label, which may be missing, and their number. Units of one
    row have targets that tell them from those of other rows: a loss finds the rows of a batch by them."""

    def read(self, texts: Sequence[str], pairs: Sequence[str] | None) -> tuple[list[str], list[str], np.ndarray]:
        """Return the texts and second texts of the units of all rows [U], and the number of units of each row [N]."""
        rows = [self.pairs(text, pair) for text, pair in zip(texts, pairs or [""] * len(texts), strict=True)]
        every = [both for row in rows for both in row]
        counts_N = np.asarray([len(row) for row in rows], dtype=np.int64)
        return [text for text, _ in every], [pair for _, pair in every], counts_N


def overlap_of(max_length: int) -> int:
    """Return the number of tokens that neighbouring windows share."""
    return max_length // OVERLAP


def ragged_array(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays as one array [N] of arrays."""
    found = np.empty(len(rows), dtype=object)
    for place, values in enumerate(rows):
        found[place] = values
    return found


def by_row(values_U: np.ndarray, counts_N: np.ndarray) -> np.ndarray:
    """Return the values of all units by row, from the number of units of each row."""
    return ragged_array(np.split(values_U, np.cumsum(counts_N)[:-1]) if len(counts_N) else [])


def flattened(values: np.ndarray) -> np.ndarray:
    """Return the values of all units of all rows; values of whole rows are returned as they are."""
    if values.dtype != object:
        return values
    return np.concatenate(list(values)) if len(values) else np.empty(0)
