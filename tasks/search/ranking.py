"""Rankings of shapes: how far two agree, which shapes are judged first, and which differ enough to be candidates.

Source: Kendall 1938, "A New Measure of Rank Correlation", Biometrika 30 (tau-b, which knows ties).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from tasks.metrics.of_values import spearman

TRUSTED = 0.6
"""Least tau at which a cheaper ranking is taken for that of whole trainings."""
ROUND_FACTOR = 3
"""Each round of the halving trains a third of the shapes, with three times the steps."""
LEAST_ORDERED = 0.5
"""Least share of pairs that both scores order: tau leaves ties out, so that it may be 1 by a few pairs."""
FEW_CANDIDATES = 5
"""Of fewer candidates tau tells little: of three, one order by chance in six is the same."""
LARGEST_LATENCY_ERROR = 0.05
"""Mean error of predicted latencies, as a share, above which a search says that they are wrong."""
LEAST_RANK = 0.98
"""Rank correlation of predicted and measured latencies below which a search says that their order is wrong."""
LEAST_DIFFERENCE = 0.05
"""Two shapes whose costs differ by less than this share are one to a user, since a latency is known within 5 %."""


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return tau-b of two scores of the same shapes, from -1 to 1; None for fewer than three, or where all scores of
    one are equal. scipy has it, too, and takes half a second to import, which a cached search would wait for."""
    if len(first) < 3:
        return None
    agreement, untied = 0, [0, 0]
    for (one, other), (its_one, its_other) in combinations(zip(first, second, strict=True), 2):
        signs = which_is_larger(one, its_one), which_is_larger(other, its_other)
        agreement += signs[0] * signs[1]
        untied = [count + (sign != 0) for count, sign in zip(untied, signs, strict=True)]
    return agreement / math.sqrt(untied[0] * untied[1]) if all(untied) else None


def ordered_share(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the share of pairs of shapes that are untied in both scores; 0 for fewer than two shapes."""
    pairs = list(combinations(zip(first, second, strict=True), 2))
    untied = sum(one != its_one and other != its_other for (one, other), (its_one, its_other) in pairs)
    return untied / len(pairs) if pairs else 0.0


def which_is_larger(one: float, other: float) -> int:
    """Return 1 if the first of two scores is larger, -1 if it is smaller, 0 if they are equal."""
    return int(one > other) - int(one < other)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None for fewer than two values, or where all are equal."""
    if len(first) < 2 or any(len(set(one)) == 1 for one in (first, second)):
        return None
    return spearman(np.asarray(first), np.asarray(second))


def dominated(costs: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
    """Tell whether one of the others is at most as large on every axis, and smaller on one."""
    return any(
        all(its <= own for its, own in zip(other, costs, strict=True)) and tuple(other) != tuple(costs)
        for other in others
    )


def cost_the_same(first: Sequence[float], second: Sequence[float]) -> bool:
    """Tell whether two shapes differ by less than 5 % in every cost."""
    return all(abs(one - other) <= LEAST_DIFFERENCE * max(one, other) for one, other in zip(first, second, strict=True))


def rounds_of(shapes: int, candidates: int, rounds: int) -> list[int]:
    """Return how many shapes each round of successive halving trains; the last round trains the candidates, and a round
    that would leave no shape out is not made."""
    last = min(shapes, candidates)
    sizes = [max(last, math.ceil(shapes / ROUND_FACTOR**number)) for number in range(rounds - 1)] + [last]
    return [size for size, following in pairwise([*sizes, 0]) if size != following]
