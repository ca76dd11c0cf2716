"""Vectors of pairs of texts: a pair is two rows, its text and then its second text. Shape letters: P pairs, D width."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tasks.errors import DataError

VECTOR = "sentence_embedding"


def both_sides(outputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of the texts and of the second texts [P, D], at unit length, in float64. Raises DataError for
    an odd number of rows."""
    vectors = outputs[VECTOR].astype(np.float64)
    if len(vectors) % 2:
        raise DataError(f"{len(vectors):,} texts are no pairs of texts; name the column of second texts by task.pair")
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return unit[0::2], unit[1::2]


def of_both(values_P: np.ndarray) -> np.ndarray:
    """Return the figure of each pair for both of its rows [2 P]."""
    return np.repeat(values_P, 2)
