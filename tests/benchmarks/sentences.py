"""Sentences as long as SST-2's, of random words: what a benchmark computes depends on lengths, not on meaning.

The lengths are those of SST-2's 67,349 training sentences in WordPiece tokens, cut at 64: mean 13.3, median 10. A
sample takes evenly spaced quantiles, so that its mean is the population's and no draw of luck makes one side look fast.
Sentences come in groups of like length, as they do in an epoch that is sorted in pools of 100 batches: a small sample
that is sorted would pad more than a whole epoch does.
"""

from __future__ import annotations

import numpy as np

from tasks.training.data.batches import POOL
from tasks.training.data.encoded import Encoded

SHORTEST = 3
COUNTS = [
    1978,
    5322,
    6065,
    5345,
    4749,
    4155,
    3713,
    3267,
    2947,
    2650,
    2413,
    2138,
    1950,
    1777,
    1661,
    1515,
    1373,
    1285,
    1132,
    1106,
    1046,
    909,
    820,
    806,
    733,
    692,
    628,
    538,
    491,
    442,
    448,
    400,
    337,
    304,
    286,
    242,
    195,
    203,
    192,
    155,
    148,
    130,
    89,
    82,
    85,
    73,
    55,
    42,
    50,
    40,
    36,
    19,
    21,
    22,
    15,
    8,
    6,
    3,
    2,
    5,
    5,
    5,
]
"""How many sentences have 3, 4, 5, … 64 tokens, [CLS] and [SEP] included."""
MEAN = float(np.average(np.arange(SHORTEST, SHORTEST + len(COUNTS)), weights=COUNTS))
FIRST_WORD, LAST_WORD, START, END = 2000, 28_000, 101, 102
DISTINCT = 11_572
"""How many of the vocabulary's 30,522 tokens those sentences use; what is trained of an embedding depends on it."""


def quantiles(count: int) -> np.ndarray:
    """Return ``count`` lengths at evenly spaced quantiles, shortest first."""
    return np.searchsorted(np.cumsum(COUNTS) / sum(COUNTS), (np.arange(count) + 0.5) / count) + SHORTEST


def sample_lengths(batches: int, size: int) -> np.ndarray:
    """Return the lengths of some of the batches of a sorted pool, in an order drawn from a fixed seed."""
    pool = quantiles(POOL * size).reshape(POOL, size)
    taken = pool[((np.arange(batches) + 0.5) * POOL / batches).astype(int)]
    return np.random.default_rng(0).permutation(taken.ravel())


def sample(batches: int, size: int) -> Encoded:
    """Return sentences of random words, laid end to end."""
    lengths = sample_lengths(batches, size)
    random = np.random.default_rng(1)
    ids = random.integers(FIRST_WORD, LAST_WORD, lengths.sum()).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids[offsets[:-1]], ids[offsets[1:] - 1] = START, END
    return Encoded(ids, np.zeros_like(ids), offsets)


def vocabulary(encoded: Encoded) -> np.ndarray:
    """Return as many tokens as a whole epoch uses, those of a sample among them."""
    others = np.setdiff1d(np.arange(FIRST_WORD, LAST_WORD, dtype=np.int32), encoded.ids_S)
    return np.concatenate([np.unique(encoded.ids_S), others])[:DISTINCT]


def split(encoded: Encoded) -> list[list[int]]:
    """Return each sentence's tokens."""
    return [
        encoded.ids_S[start:stop].tolist()
        for start, stop in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)
    ]
