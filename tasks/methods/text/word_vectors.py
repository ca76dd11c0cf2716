"""Word vectors: the nearest neighbours of a word, offered as its substitutes.

Paper: used for words of several pieces in Jiao et al. 2019 (TinyBERT), arXiv:1909.10351.
Shape letters in this file: V vocabulary, E vector width, R query rows, K neighbours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.errors import DataError

ROWS_AT_ONCE = 256
"""A block of 256 rows against 100,000 words of float32 takes about 100 MB."""


def nearest_words(vectors_VE: NDArray[np.floating], rows: NDArray[np.integer], k: int) -> NDArray[np.int64]:
    """Return for each row its ``k`` nearest other rows by cosine, best first: [R, min(k, V - 1)].

    The vectors must have length 1. Of equally near words the one of lower index (the more frequent) wins.
    """
    wanted_R: NDArray[np.int64] = np.asarray(rows, dtype=np.int64)
    if wanted_R.size and not (wanted_R.min() >= 0 and wanted_R.max() < len(vectors_VE)):
        raise DataError(f"word rows must lie between 0 and {len(vectors_VE) - 1}; look words up in the same file")
    count = max(min(k, len(vectors_VE) - 1), 0)
    found_RK = np.empty((len(wanted_R), count), dtype=np.int64)
    for start in range(0, len(wanted_R) if count else 0, ROWS_AT_ONCE):
        block = wanted_R[start : start + ROWS_AT_ONCE]
        found_RK[start : start + ROWS_AT_ONCE] = _nearest_in_block(vectors_VE, block, count)
    return found_RK


def _nearest_in_block(vectors_VE: NDArray[np.floating], block: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    cosines_RV = vectors_VE[block] @ vectors_VE.T
    cosines_RV[np.arange(len(block)), block] = -np.inf
    best_RK = np.argpartition(-cosines_RV, count - 1, axis=1)[:, :count]
    _settle_ties(best_RK, cosines_RV)
    best_RK.sort(axis=1)  # the stable sort below then settles ties by index
    order_RK = np.argsort(-np.take_along_axis(cosines_RV, best_RK, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best_RK, order_RK, axis=1)


def _settle_ties(best_RK: NDArray[np.int64], cosines_RV: NDArray[np.floating]) -> None:
    """Among words as near as the last selected one, select those of lower index; a partition selects any of them."""
    last_R1 = np.take_along_axis(cosines_RV, best_RK, axis=1).min(axis=1, keepdims=True)
    for row in np.flatnonzero(np.count_nonzero(cosines_RV >= last_R1, axis=1) > best_RK.shape[1]):
        nearer, level = cosines_RV[row] > last_R1[row], cosines_RV[row] == last_R1[row]
        best_RK[row] = np.concatenate([np.flatnonzero(nearer), np.flatnonzero(level)])[: best_RK.shape[1]]
