"""Which words of a text are predicted: runs of one to three whole words, as in ALBERT's pretraining.

Paper: Lan et al. 2019, ALBERT, arXiv:1909.11942; runs from Joshi et al. 2019, SpanBERT, arXiv:1907.10529. The reference
lets a run cross a [SEP], because its list of words leaves special tokens out; here runs end with their segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

CONTINUES = "##"
"""Begins a WordPiece that goes on with the word before it."""
MASKED, CHANGED = 0.8, 0.1
"""Share of the predicted tokens that are masked, and that are replaced by another token; the rest stays (Devlin et al.
2018, BERT, arXiv:1810.04805)."""

Words = Sequence[tuple[int, int]]
"""The words of a segment, each by its first token and the one after its last."""


def begins_word(pieces: Sequence[str]) -> list[bool]:
    """Tell of each piece whether a word begins with it; special tokens are words of their own."""
    return [not piece.startswith(CONTINUES) for piece in pieces]


def words_between(begins_T: Sequence[bool], first: int, end: int) -> list[tuple[int, int]]:
    """Return the words of a segment; a piece that goes on with a word which was cut off is a word."""
    starts = [place for place in range(first, end) if place == first or begins_T[place]]
    return list(zip(starts, [*starts[1:], end], strict=True))


def tokens_to_predict(length: int, share: float, most: int) -> int:
    """Return the number of tokens that are predicted of a text of ``length`` tokens, special ones included: at least
    one, at most ``most``, halves rounded to even."""
    return min(most, max(1, round(length * share)))


def shares_of_lengths(longest: int) -> list[float]:
    """Return the chances of runs of 1, 2, ... words, which fall as 1 / n: 6/11, 3/11 and 2/11 for three."""
    parts = [Fraction(1, length) for length in range(1, longest + 1)]
    return [float(part / sum(parts)) for part in parts]


def drawn_ngrams(segments: Sequence[Words], budget: int, longest: int, random: np.random.Generator) -> list[int]:
    """Return the tokens that are predicted: runs from words drawn without order, shortened where the budget or their
    segment ends; a run that touches another one is dropped, and a word that the budget has no room for, too."""
    words = [(segment, number) for segment, inner in enumerate(segments) for number in range(len(inner))]
    reach, chosen, covered = np.cumsum(shares_of_lengths(longest)[:-1]).tolist(), list[int](), set[int]()
    order, dice = random.permutation(len(words)).tolist(), random.random(len(words)).tolist()
    for place, die in zip(order, dice, strict=True):
        if len(chosen) >= budget:
            break
        segment, number = words[place]
        run = segments[segment][number : number + 1 + sum(die >= end for end in reach)]
        while run and run[-1][1] - run[0][0] > budget - len(chosen):
            run = run[:-1]
        tokens = range(run[0][0], run[-1][1]) if run else range(0)
        if covered.isdisjoint(tokens):
            covered.update(tokens)
            chosen.extend(tokens)
    return sorted(chosen)


def shown_tokens(ids_P: np.ndarray, mask: int, words_W: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the tokens that stand in place of predicted ones, drawn for each token by itself: the mask, one of
    ``words_W``, or the token."""
    dice_P = random.random(len(ids_P))
    other_P = words_W[random.integers(len(words_W), size=len(ids_P))]
    return np.where(dice_P < MASKED, mask, np.where(dice_P < MASKED + CHANGED, other_P, ids_P))
