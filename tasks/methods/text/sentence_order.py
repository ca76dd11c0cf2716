"""Pairs of segments for the prediction of their order, or of whether they belong together.

Papers: order, Lan et al. 2019, ALBERT, arXiv:1909.11942; next sentence, Devlin et al. 2018, BERT, arXiv:1810.04805. Two
defects of ALBERT's code are avoided. It pairs a piece of a single sentence with another text and labels it swapped, so
that the topic betrays the order (39 % of the pairs of short documents); here a piece has two sentences or is left out,
and the order is never asked of two texts. And its n-grams cross the border of the segments (``ngrams.py``). Lengths of
segments, and whether they end with a sentence, tell no label here.

Shape letters: S sentences, D documents, N pairs. A sentence is a range of tokens of one stream; so is a segment,
because the sentences of a document follow each other in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SHORTER = 0.1
"""Share of the pairs that are shorter than they could be, so that short texts are seen, too."""
LEAST_AIM = 2
"""Tokens of the shortest pair that is aimed at."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of segments: the first and the last but one token of each in the stream, and 1 for a pair that does not
    stand so in any text."""

    first_N2: np.ndarray
    second_N2: np.ndarray
    labels_N: np.ndarray

    @property
    def lengths_N(self) -> np.ndarray:
        """Tokens of both segments."""
        return np.asarray(np.diff(self.first_N2)[:, 0] + np.diff(self.second_N2)[:, 0])


def segment_pairs(
    offsets_S: np.ndarray,
    documents_D2: np.ndarray,
    order: str,
    room: int,
    random: np.random.Generator,
) -> Pairs:
    """Return pairs of all documents, of at most ``room`` tokens each, half of them labelled 1.

    ``offsets_S`` has the first token of each sentence, and behind them their number; ``documents_D2`` the first and the
    last but one sentence of each document. ``order`` is ``sop`` (label 1: the two are swapped), ``nsp`` (label 1: the
    second one is of another document) or ``none`` (all as in the text). Pieces, cuts and labels are the same for all
    three; second segments of ``nsp`` are shorter where the foreign one drawn for the pair is.
    """
    targets_S = targets(len(offsets_S), room, random)
    pieces_N2, targets_N = pieces_of_both_ends(np.diff(offsets_S), documents_D2, targets_S, random)
    cuts_N = pieces_N2[:, 0] + 1 + (random.random(len(pieces_N2)) * (np.diff(pieces_N2)[:, 0] - 1)).astype(np.int64)
    labels_N = (random.random(len(pieces_N2)) < 0.5).astype(np.int64)
    first_N2, second_N2 = (
        offsets_S[np.stack(ends, 1)] for ends in ((pieces_N2[:, 0], cuts_N), (cuts_N, pieces_N2[:, 1]))
    )
    cutting, others = random.spawn(2)
    if order == "none":
        labels_N = np.zeros_like(labels_N)
    if order == "nsp" and len(documents_D2) < 2:
        labels_N = np.zeros_like(labels_N)
    elif order == "nsp":
        own_N = np.searchsorted(documents_D2[:, 0], cuts_N, side="right") - 1
        left_N = targets_N - np.diff(first_N2)[:, 0]
        second_N2, foreign_N2 = cut_alike(second_N2, from_others(second_N2, own_N, left_N, others))
        second_N2 = np.where(labels_N[:, None] == 1, foreign_N2, second_N2)
    swapped_N1 = (labels_N[:, None] == 1) & (order == "sop")
    first_N2, second_N2 = np.where(swapped_N1, second_N2, first_N2), np.where(swapped_N1, first_N2, second_N2)
    return cut_to_room(Pairs(first_N2, second_N2, labels_N), room, cutting)


def targets(count: int, room: int, random: np.random.Generator) -> np.ndarray:
    """Return lengths to aim at: all of the room, or for a tenth of them anything shorter."""
    shorter = random.integers(LEAST_AIM, room + 1, size=count)
    return np.where(random.random(count) < SHORTER, shorter, room)


def pieces(lengths_S: np.ndarray, documents_D2: np.ndarray, targets_N: np.ndarray) -> np.ndarray:
    """Return pieces of documents as their first and last but one sentence: sentences are gathered until the target of
    the piece is reached, and there are two. A sentence that remains alone at the end of its document is left out."""
    lengths, targets, found = lengths_S.tolist(), targets_N.tolist(), list[tuple[int, int]]()
    for start, end in documents_D2.tolist():
        first, gathered, target = start, 0, targets[len(found)]
        for sentence in range(start, end):
            gathered += lengths[sentence]
            if sentence > first and (gathered >= target or sentence == end - 1):
                found.append((first, sentence + 1))
                first, gathered, target = sentence + 1, 0, targets[len(found)]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def pieces_of_both_ends(
    lengths_S: np.ndarray, documents_D2: np.ndarray, targets_S: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces of all documents, and the target of each. Half of the documents are gathered from their end.

    The sentence that reaches the target is a long one. If it always stood last, the longer segment would be the second
    one of the text in 53 to 56 of 100 pairs, and lengths would betray the order.
    """
    backwards_D = random.random(len(documents_D2)) < 0.5
    forth_N2 = pieces(lengths_S, documents_D2[~backwards_D], targets_S)
    mirrored_D2 = len(lengths_S) - documents_D2[backwards_D][::-1, ::-1]
    back_N2 = len(lengths_S) - pieces(lengths_S[::-1], mirrored_D2, targets_S[::-1])[:, ::-1]
    found_N2 = np.concatenate([forth_N2, back_N2])
    targets_N = np.concatenate([targets_S[: len(forth_N2)], targets_S[::-1][: len(back_N2)]])
    order_N = np.argsort(found_N2[:, 0])
    return found_N2[order_N], targets_N[order_N]


def from_others(
    second_N2: np.ndarray, own_N: np.ndarray, left_N: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Return for each pair the second segment of a pair of another document; ``own_N`` are the documents of the pairs.

    It is that of a pair whose first segment leaves about as many of the tokens aimed at, ``left_N``, so that both
    segments are drawn alike. Of a segment drawn anywhere, the length and the place of its end would betray that it is
    foreign.
    """
    order_N = np.lexsort((random.random(len(left_N)), np.maximum(left_N, 1)))
    sorted_N = own_N[order_N]
    begins = np.flatnonzero(sorted_N != np.roll(sorted_N, 1))  # of neighbours of one document; the last meet the first
    next_N = begins[np.searchsorted(begins, np.arange(len(own_N)), side="right") % len(begins)]
    foreign_N2 = np.empty_like(second_N2)
    foreign_N2[order_N] = second_N2[order_N[next_N]]
    return foreign_N2


def cut_alike(one_N2: np.ndarray, other_N2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both segments of each pair as long as the shorter of them, of which one will be read."""
    length_N1 = np.minimum(np.diff(one_N2), np.diff(other_N2))
    cut = (np.hstack([ends_N2[:, :1], ends_N2[:, :1] + length_N1]) for ends_N2 in (one_N2, other_N2))
    return next(cut), next(cut)


def cut_to_room(pairs: Pairs, room: int, random: np.random.Generator) -> Pairs:
    """Return pairs that fit into the room: the longer side of each is cut, both where that is not enough, token by
    token at an end that is drawn."""
    ours_N, theirs_N = np.diff(pairs.first_N2)[:, 0], np.diff(pairs.second_N2)[:, 0]
    left_N = np.minimum(ours_N, np.maximum(room - theirs_N, (room + 1) // 2))
    right_N = np.minimum(theirs_N, room - left_N)
    sides = []
    for ends_N2, over_N in ((pairs.first_N2, ours_N - left_N), (pairs.second_N2, theirs_N - right_N)):
        front_N = random.binomial(over_N, 0.5)
        sides.append(ends_N2 + np.stack([front_N, front_N - over_N], 1))
    return Pairs(sides[0], sides[1], pairs.labels_N)
