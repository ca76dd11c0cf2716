"""Units of a row that have an answer each, such as the words of a sentence: how they are found among the tokens of a
text, and arrays of rows that differ in their number of units.

A row whose units are asked for is read in windows where it is longer than a model's input. Shape letters: N rows, U
units of all rows, T tokens of a window, C outputs of a unit.
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
