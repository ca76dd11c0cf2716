"""Verdicts on whether a candidate is better than its labels-only baseline, given only for significant differences.

A table compares many candidates, and of twenty that are equal to their baseline one would look different at 95 %. So
the verdicts hold for all comparisons of one table and split at once: the p-values are corrected by Holm's step-down
procedure (Holm 1979, "A simple sequentially rejective multiple test procedure"), which keeps the probability of even
one wrong verdict below 5 %, whatever the dependence between comparisons. The intervals beside the verdicts are those of
each comparison alone. "better" needs both: a corrected p-value below 5 %, and an interval that excludes zero. With one
seed on a side the variance between trainings is unknown: a difference that rows alone do not explain is then left open.
So it is where the rows are of fewer than ``FEWEST_GROUPS`` groups, whose spread they hardly show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.results.facts import ContrastFacts, SplitContrast
from tasks.results.row import Comparison

INSIDE, OPEN, FEW = "inside the noise", "not known by one seed", "not known by so few groups"
FEWEST_GROUPS = 10
"""Groups of rows from which percentiles of resampled groups are read. For means of groups of one size and a normal
spread, an interval that says 95 % holds in 90 % of the cases at 10 groups, in 85 % at 5 and in 75 % at 3."""

Pair = tuple[str, str]
"""A candidate and its baseline, by name."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, in the given order."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def verdicts(
    found: Mapping[Pair, ContrastFacts], confidence: float, groups: Mapping[str, int] | None = None
) -> dict[str, dict[str, dict[str, Comparison]]]:
    """Return the verdicts on every candidate by baseline and split, each with the difference, its interval and its
    p-value.

    ``found`` holds the results of the comparisons by pair; they are corrected together, split by split. ``groups`` are
    the numbers of groups of the splits whose rows come in groups.
    """
    said: dict[str, dict[str, dict[str, Comparison]]] = {}
    for split in sorted({split for facts in found.values() for split in facts.splits}):
        pairs = [pair for pair, facts in found.items() if split in facts.splits]
        measured = [found[pair].splits[split] for pair in pairs]
        for pair, one, p in zip(pairs, measured, holm([one.p for one in measured]), strict=True):
            word = verdict(one, p, confidence, lower_is_better=found[pair].lower_is_better)
            word = OPEN if word != INSIDE and min(found[pair].seeds) < 2 else word
            word = FEW if word != INSIDE and are_few((groups or {}).get(split)) else word
            name, baseline = pair
            entry = Comparison(value=one.value, low=one.low, high=one.high, p=p, seeds=found[pair].seeds, verdict=word)
            said.setdefault(name, {}).setdefault(baseline, {})[split] = entry
    return said


def are_few(groups: int | None) -> bool:
    """Tell whether rows are of too few groups; None: they do not come in groups."""
    return groups is not None and groups < FEWEST_GROUPS


def verdict(difference: SplitContrast, p: float, confidence: float, *, lower_is_better: bool) -> str:
    """Return the verdict on one difference; the interval must exclude zero as well, independently of the p-value."""
    if p > 1 - confidence or difference.low <= 0 <= difference.high:
        return INSIDE
    return "better" if (difference.value > 0) != lower_is_better else "worse"
