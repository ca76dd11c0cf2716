"""Rankings of shapes: how far two agree, which shapes are judged first, and which differ enough to be candidates.

Source: Kendall 1938, "A New Measure of Rank Correlation", Biometrika 30 (tau-b, which knows ties).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

LEAST_DIFFERENCE = 0.05
"""Two shapes whose costs differ by less than this share are one to a user, since a latency is known within 5 %."""


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return tau-b of two scores of the same shapes, from -1 to 1; None for fewer than three, or where all scores of
    one are equal."""
    if len(first) < 3:
        return None
    signs = [
        (np.sign(first[one] - first[other]), np.sign(second[one] - second[other]))
        for one in range(len(first))
        for other in range(one)
    ]
    untied = [math.sqrt(sum(1 for pair in signs if pair[side])) for side in (0, 1)]
    return float(sum(a * b for a, b in signs)) / (untied[0] * untied[1]) if all(untied) else None


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None for fewer than two values, or where all are equal."""
    ranks = [np.argsort(np.argsort(np.asarray(one), kind="stable"), kind="stable") for one in (first, second)]
    if len(first) < 2 or any(len(set(one)) == 1 for one in (first, second)):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def dominated(costs: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
    """Tell whether one of the others is at most as large on every axis, and smaller on one."""
    return any(
        all(its <= own for its, own in zip(other, costs, strict=True)) and tuple(other) != tuple(costs)
        for other in others
    )


def cost_the_same(first: Sequence[float], second: Sequence[float]) -> bool:
    """Tell whether two shapes differ by less than 5 % in every cost."""
    return all(abs(one - other) <= LEAST_DIFFERENCE * max(one, other) for one, other in zip(first, second, strict=True))


def rounds_of(shapes: int, candidates: int, rounds: int, factor: int = 3) -> list[int]:
    """Return how many shapes each round of successive halving trains; the last round trains the candidates."""
    last = min(shapes, candidates)
    return [max(last, math.ceil(shapes / factor**number)) for number in range(rounds - 1)] + [last]
