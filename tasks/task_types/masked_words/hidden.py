"""Tokens of a document that are hidden, and found from those around them: a fixed share, drawn by the text itself.

The same text has the same hidden tokens in every epoch, for every model, and when it judges, so that a teacher's
answers are kept once, and models are compared at the same places. All of them are hidden: none is left as it is, or
replaced by another word. Devlin et al. 2018, BERT, arXiv:1810.04805. Shape letters: U hidden tokens of a document, T
tokens of a window.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from tasks.task_types.next_words.document import no_numbers, summed_nats
from tasks.task_types.units import Units

SHARE_HIDDEN = 0.15
"""The share of a document's tokens that is hidden: that of BERT."""


def nothing_shared(max_length: int) -> int:
    """Return the number of tokens that neighbouring windows share: none, so that each token stands once."""
    return 0


def drawn_tokens(text: str, count: int) -> np.ndarray:
    """Tell for each token of a text whether it is hidden [count]; at least one is, where there is one."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    # RandomState, because numpy promises that its numbers never change: they are part of what a judged model was asked.
    draws = np.random.RandomState(seed).random_sample(count)
    return np.asarray(draws < max(SHARE_HIDDEN, draws.min(initial=1.0) * (1 + 1e-9)))


def hidden_tokens(text: str, windows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return by window, at each hidden token, its number [T]; -1 for others."""
    there = [
        np.asarray(places_T2.any(1)) for places_T2 in windows
    ]  # special tokens and padding stand nowhere in the text
    is_hidden = drawn_tokens(text, sum(int(one.sum()) for one in there))
    numbers, found, before = np.where(is_hidden, np.cumsum(is_hidden) - 1, -1), list[np.ndarray](), 0
    for there_T in there:
        unit_T = np.full(len(there_T), -1, dtype=np.int64)
        unit_T[there_T] = numbers[before : before + int(there_T.sum())]
        found.append(unit_T)
        before += int(there_T.sum())
    return found


HIDDEN_TOKENS = Units(
    places=hidden_tokens,
    targets_at=no_numbers,
    conclude=summed_nats,
    shared=nothing_shared,
    are_hidden=True,
)
