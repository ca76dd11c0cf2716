"""The files of a teacher's stored layers, by memory map: hidden states and attention scores of valid tokens, by row.

With 16 bits, values are float16 (11 bits of precision). With 8 bits, each value is a whole number from -127 to 127
times scales: of hidden states one for each token and one for each unit, because a few units of an encoder are far
larger than the others (Xiao et al. 2022, SmoothQuant, arXiv:2211.10438); of scores one for each row, layer and head.
Shape letters: N rows, S tokens of all rows, T tokens of a row, E teacher width, H heads, M hidden states, L attention
layers.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.recipe.layer_storage import TextSize

LARGEST = 60_000.0  # a little less than the largest float16, 65,504
STEPS = 127  # positive values of 8 bits
LEAST_SCALE = 1e-12  # a scale of zeros only


@dataclass(frozen=True)
class StoragePlan:
    """The signals to store of each row: the layers of hidden states and of scores, their sizes, and the bits of a
    value."""

    hidden: tuple[int, ...]
    attention: tuple[int, ...]
    width: int
    heads: int
    left: bool = False
    bits: int = 16


def size_of(lengths_N: np.ndarray) -> TextSize:
    """Return the size of rows of these lengths."""
    return TextSize(len(lengths_N), int(lengths_N.sum()), int(np.square(lengths_N.astype(np.int64)).sum()))


class SignalFiles:
    """The stored layers of rows of these lengths in one folder; ``mode`` is ``r`` to read and ``r+`` to create."""

    def __init__(self, folder: Path, lengths_N: np.ndarray, plan: StoragePlan, mode: Any) -> None:
        self.folder, self.plan, self.mode, self.starts = folder, plan, mode, ends_of(lengths_N)
        text, kind = size_of(lengths_N), np.float16 if plan.bits == 16 else np.int8
        pairs = np.square(lengths_N.astype(np.int64)) * len(plan.attention) * plan.heads
        self.places, self.lengths_N = ends_of(pairs), lengths_N
        self.hidden_SME = self.mapped("hidden.raw", kind, (text.tokens, len(plan.hidden), plan.width))
        self.scores = self.mapped("scores.raw", kind, (int(pairs.sum()),))
        if plan.bits == 8:
            self.tokens_SM = self.mapped("token_scales.raw", np.float32, (text.tokens, len(plan.hidden)))
            self.units_ME = self.mapped("unit_scales.raw", np.float32, (len(plan.hidden), plan.width))
            of_rows = (text.rows, len(plan.attention), plan.heads)
            self.heads_NLH = self.mapped("head_scales.raw", np.float32, of_rows)

    def mapped(self, name: str, kind: Any, shape: tuple[int, ...]) -> np.memmap:
        """Open one file by memory map, or create it; raise OSError if the disk is full."""
        # An empty file cannot be mapped: a signal that is not stored gets a file of one number.
        shape = shape if math.prod(shape) else (1,) * len(shape)
        if self.mode == "r+":
            with (self.folder / name).open("wb") as stream:  # a write to the map would kill the process without a word
                os.posix_fallocate(stream.fileno(), 0, np.dtype(kind).itemsize * math.prod(shape))
        return np.memmap(self.folder / name, kind, self.mode, shape=shape)

    def scale_units(self, states_SME: np.ndarray) -> None:
        """Take the scale of each unit from the states of some tokens; needed once, before 8-bit states are written."""
        if self.plan.bits == 8 and self.plan.hidden:
            self.units_ME[:] = np.maximum(np.abs(states_SME).max(0), LEAST_SCALE)

    def write_states(self, row: int, states_TME: np.ndarray) -> None:
        """Write the hidden states of a row; raise OverflowError for values that float16 does not have."""
        there = slice(self.starts[row], self.starts[row + 1])
        if self.plan.bits == 16:
            self.hidden_SME[there] = halves(states_TME)
            return
        scaled_TME = states_TME / self.units_ME
        scales_TM = scales_of(scaled_TME, -1)
        self.tokens_SM[there], self.hidden_SME[there] = scales_TM, codes_of(scaled_TME, scales_TM[..., None])

    def write_scores(self, row: int, scores_LHTT: np.ndarray) -> None:
        """Write the attention scores of a row; raise OverflowError for values that float16 does not have."""
        there = slice(self.places[row], self.places[row + 1])
        if self.plan.bits == 16:
            self.scores[there] = halves(scores_LHTT).ravel()
            return
        scales_LH = scales_of(scores_LHTT, (-2, -1))
        self.heads_NLH[row], self.scores[there] = scales_LH, codes_of(scores_LHTT, scales_LH[..., None, None]).ravel()

    def states_of(self, row: int) -> np.ndarray:
        """Return the hidden states [T, M, E] of a row."""
        there = slice(self.starts[row], self.starts[row + 1])
        codes_TME = self.hidden_SME[there]
        return codes_TME if self.plan.bits == 16 else codes_TME * self.tokens_SM[there][..., None] * self.units_ME

    def scores_of(self, row: int) -> np.ndarray:
        """Return the attention scores [L, H, T, T] of a row."""
        length = int(self.lengths_N[row])
        shape = (len(self.plan.attention), self.plan.heads, length, length)
        codes_LHTT = self.scores[self.places[row] : self.places[row + 1]].reshape(shape)
        return codes_LHTT if self.plan.bits == 16 else codes_LHTT * self.heads_NLH[row][..., None, None]

    def flush(self) -> None:
        """Write everything to the disk."""
        scales = (self.tokens_SM, self.units_ME, self.heads_NLH) if self.plan.bits == 8 else ()
        for values in (self.hidden_SME, self.scores, *scales):
            values.flush()


def ends_of(sizes_N: np.ndarray) -> np.ndarray:
    """Return the offset of each row, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(sizes_N)])


def halves(values: np.ndarray) -> np.ndarray:
    """Return values in float16; raise OverflowError if one is too large, infinite or undefined."""
    require_below(values, LARGEST)
    return values.astype(np.float16)


def scales_of(values: np.ndarray, axes: int | tuple[int, ...]) -> np.ndarray:
    """Return the scale of each group of values, so that the largest becomes 127."""
    require_below(values, math.inf)
    return np.asarray(np.maximum(np.abs(values).max(axes), LEAST_SCALE) / STEPS, dtype=np.float32)


def codes_of(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return values in units of their scales, as whole numbers of 8 bits."""
    return np.asarray(np.rint(values / scales), dtype=np.int8)


def require_below(values: np.ndarray, limit: float) -> None:
    """Raise OverflowError for a value that is undefined, infinite, or too large to be stored."""
    if not float(np.abs(values).max(initial=0.0)) < limit:
        raise OverflowError("one of its layers has values too large to be stored")
