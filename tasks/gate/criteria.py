"""One criterion against one candidate: met or not, missed by how much, and a sentence. Pure: figures in, words out.

A bound is absolute, or a share of the teacher's or the champion's figure, or a difference to it. A bound on quality is
read at the worse end of the figure's interval, unless the criterion says ``reading: mean``: for ``retained`` that is
non-inferiority by a share of the teacher's score. A test reads the interval of a paired difference, turned so that more
is better (a gain): non-inferior is what certainly loses no more than the tolerance, superior what certainly gains more
than it (Piaggio et al. 2012, "Reporting of noninferiority and equivalence randomized trials"). What is unknown is never
met.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.recipe.judging import COSTS, FIGURES, Criterion
from tasks.scoring.quality.gain import Gain

PACED = ("latency_ms", "speedup", "joules")
"""Figures that follow from how long an inference takes."""
UNKNOWN = 1.0  # the relative shortfall of a figure that is not known: as bad as missing the whole bound
ROUNDING = 1e-12  # what a sum of decimal fractions may be off
LEDGER = {"dollars": "dollars_on_demand"}
"""Names of the ledger's figures, where they differ from the gate's."""


@dataclass(frozen=True)
class Finding:
    """What one criterion said of one candidate."""

    metric: str
    met: bool
    reason: str
    shortfall: float = 0.0
    """What is missing, as a share of the bound, so that shortfalls in quality, time and size can be added up."""
    worse: bool = False
    """A test shows the candidate to be certainly worse than its reference, by more than the tolerance."""


@dataclass(frozen=True)
class Champion:
    """The model that holds the alias, as criteria see it."""

    version: str
    checkpoint: str
    row: Mapping[str, Any]
    comparable: bool = True
    """It was judged on the very rows of this gate, and has not learned from any of them."""
    why: str = "was judged on other rows"
    """Why it is not comparable."""
    on: str = ""
    """On which rows a test compares it; empty where that is all of them."""


def weigh(
    criterion: Criterion,
    candidate: Mapping[str, Any],
    teacher: Mapping[str, Any],
    champion: Champion | None = None,
    read: Gain | None = None,
    rivals: int = 1,
) -> Finding:
    """Hold a candidate against one criterion; ``read`` is the interval that it reads, widened for so many ``rivals``
    (see ``confidence_for``)."""
    metric = criterion.metric
    if criterion.reference == "champion":
        if champion is None:
            return Finding(metric, True, f"{metric}: there is no champion yet: met")
        if champion.checkpoint == candidate.get("checkpoint"):
            return Finding(metric, True, f"{metric}: it is the champion itself: met")
        if not champion.comparable and criterion.is_quality and (criterion.test is None or read is None):
            return Finding(
                metric, False, f"{metric}: the champion, version {champion.version}, {champion.why}: not met", UNKNOWN
            )
    if metric in PACED and candidate.get("unsteady"):
        return Finding(metric, False, f"{metric} is unsteady: not met", UNKNOWN)
    whose = (
        f"champion v{champion.version}'s{champion.on}"
        if champion and criterion.reference == "champion"
        else "the teacher's"
    )
    if criterion.test is not None:
        return tested(criterion, read, whose, rivals)
    reference = champion.row if champion is not None and criterion.reference == "champion" else teacher
    theirs = None if criterion.reference is None else figure(reference, metric)
    return bounded(criterion, figure(candidate, metric), theirs, whose, read, rivals)


def confidence_for(criterion: Criterion, rivals: int) -> float:
    """Return the confidence at which one of so many candidates is read, so that all of their intervals together hold
    with that of the criterion.

    Holm 1979: a first step that divides what may go wrong by the number of candidates (Bonferroni);
    ``verdicts.step_down`` takes the next ones.
    """
    return 1 - (1 - criterion.confidence) / rivals


def bounded(
    criterion: Criterion,
    value: float | None,
    theirs: float | None,
    whose: str,
    read: Gain | None = None,
    rivals: int = 1,
) -> Finding:
    """Hold a figure, or the worse end of its interval, against its bound."""
    metric = criterion.metric
    if value is None:
        return Finding(metric, False, f"{metric} is unknown: not met", UNKNOWN)
    if criterion.reference is not None and theirs is None:
        return Finding(metric, False, f"{metric} {shown(value)}, but {whose} is unknown: not met", UNKNOWN)
    if criterion.reads_interval and read is None:
        return Finding(metric, False, f"{metric} {shown(value)}, but how sure that is, is unknown: not met", UNKNOWN)
    bound, sign = bound_of(criterion, theirs), "≥" if criterion.at_least is not None else "≤"
    held, counted = f"{metric} {shown(value)}", value
    where = " by the mean" if criterion.is_quality else ""
    if criterion.reads_interval and read is not None:
        counted, end = (read.low, "lower") if sign == "≥" else (read.high, "upper")
        held, where = f"{held} [{shown(read.low)}, {shown(read.high)}]", f" at its {end} end{level(criterion, rivals)}"
    missing = (bound - counted if sign == "≥" else counted - bound) - criterion.tolerance
    held = f"{held} {sign} {shown(bound)}{basis(criterion, theirs, whose)}{where}"
    if missing <= ROUNDING * max(1.0, abs(bound)):
        return Finding(metric, True, f"{held}: met")
    return Finding(metric, False, f"{held}: missed by {shown(missing)}", share(missing, bound))


def level(criterion: Criterion, rivals: int) -> str:
    """Say how much wider an interval is because several candidates are asked; nothing of one alone."""
    return f", {100 * confidence_for(criterion, rivals):.4g} % for {rivals} candidates" if rivals > 1 else ""


def bound_of(criterion: Criterion, theirs: float | None) -> float:
    """Return the bound in the metric's own unit."""
    bound = criterion.at_least if criterion.at_least is not None else criterion.at_most
    assert bound is not None
    if theirs is None:
        return bound
    return theirs * bound if criterion.by == "share" else theirs + bound


def basis(criterion: Criterion, theirs: float | None, whose: str) -> str:
    """Say what a relative bound was computed from, and how much slack there is."""
    given = criterion.at_least if criterion.at_least is not None else criterion.at_most
    parts = []
    if theirs is not None and given is not None:
        parts.append(
            f"{shown(given)} of {whose} {shown(theirs)}"
            if criterion.by == "share"
            else f"{given:+.4g} to {whose} {shown(theirs)}"
        )
    if criterion.tolerance:
        parts.append(f"tolerance {shown(criterion.tolerance)}")
    return f" ({', '.join(parts)})" if parts else ""


def tested(criterion: Criterion, gain: Gain | None, whose: str, rivals: int = 1) -> Finding:
    """Hold the interval of a paired gain against the margin of a test."""
    metric, margin = (
        criterion.metric,
        -criterion.tolerance if criterion.test == "non-inferiority" else criterion.tolerance,
    )
    if gain is None:
        return Finding(metric, False, f"{metric} could not be compared row by row with {whose}: not met", UNKNOWN)
    word = "no worse than" if criterion.test == "non-inferiority" else "better than"
    held = (
        f"{metric} {gain.value:+.4g} [{gain.low:+.4g}, {gain.high:+.4g}] to {whose}, {word} by "
        f"{shown(criterion.tolerance)}{level(criterion, rivals)}"
    )
    met = gain.low >= margin if criterion.test == "non-inferiority" else gain.low > margin
    if met:
        return Finding(metric, True, f"{held}: met")
    worse = gain.high < min(margin, 0.0)
    return Finding(
        metric,
        False,
        f"{held}: {'certainly worse, ' if worse else ''}missed by {shown(margin - gain.low)}",
        margin - gain.low,
        worse,
    )


def figure(row: Mapping[str, Any], metric: str) -> float | None:
    """Return one figure of a candidate; None where it is missing, unknown, undefined or unsteady."""
    if metric in PACED and row.get("unsteady"):
        return None
    if metric in COSTS:
        entry = (row.get("cost") or {}).get(LEDGER.get(metric, metric))
        value = entry.get("value") if isinstance(entry, Mapping) else entry
    else:
        value = row.get(metric) if metric in FIGURES else row["metrics"].get(metric)
    return None if value is None or not math.isfinite(value) else float(value)


def share(missing: float, bound: float) -> float:
    """Return a shortfall as a share of its bound; of a bound of zero there is no share."""
    return missing / abs(bound) if bound else missing


def shown(value: float) -> str:
    """Return a figure for people: large counts in full, the rest with four digits."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
