"""One criterion against one candidate: met or not, missed by how much, and a sentence. Pure: figures in, words out.

A bound is absolute, or a share of the teacher's or the champion's figure, or a difference to it. A test reads the interval of a paired
difference, turned so that more is better (a gain): non-inferior is what certainly loses no more than the tolerance, superior what certainly
gains more than it. What is unknown is never met.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.recipe import COSTS, FIGURES, Criterion

UNKNOWN = 1.0  # the relative shortfall of a figure that is not known: as bad as missing the whole bound
ROUNDING = 1e-12  # what a sum of decimal fractions may be off
LEDGER = {"dollars": "dollars_on_demand"}
"""Names of the ledger's figures, where they differ from the gate's."""


@dataclass(frozen=True)
class Gain:
    """How far a candidate's metric lies above another's on the same rows, with its interval; errors are turned, so that more is better."""

    value: float
    low: float
    high: float


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
    """It was judged on the very rows of this gate."""


def weigh(
    criterion: Criterion, candidate: Mapping[str, Any], teacher: Mapping[str, Any], champion: Champion | None = None, gain: Gain | None = None
) -> Finding:
    """Hold a candidate against one criterion; ``gain`` is the paired difference that a test reads."""
    metric = criterion.metric
    if criterion.reference == "champion":
        if champion is None:
            return Finding(metric, True, f"{metric}: there is no champion yet: met")
        if champion.checkpoint == candidate.get("checkpoint"):
            return Finding(metric, True, f"{metric}: it is the champion itself: met")
        if not champion.comparable and metric not in (*FIGURES, *COSTS):
            return Finding(metric, False, f"{metric}: the champion, version {champion.version}, was judged on other rows: not met", UNKNOWN)
    whose = f"champion v{champion.version}'s" if champion and criterion.reference == "champion" else "the teacher's"
    if criterion.test is not None:
        return tested(criterion, gain, whose)
    reference = champion.row if champion is not None and criterion.reference == "champion" else teacher
    return bounded(criterion, figure(candidate, metric), None if criterion.reference is None else figure(reference, metric), whose)


def bounded(criterion: Criterion, value: float | None, theirs: float | None, whose: str) -> Finding:
    """Hold a figure against its bound."""
    metric = criterion.metric
    if value is None:
        return Finding(metric, False, f"{metric} is unknown: not met", UNKNOWN)
    if criterion.reference is not None and theirs is None:
        return Finding(metric, False, f"{metric} {shown(value)}, but {whose} is unknown: not met", UNKNOWN)
    bound, sign = bound_of(criterion, theirs), "≥" if criterion.at_least is not None else "≤"
    missing = (bound - value if sign == "≥" else value - bound) - criterion.tolerance
    held = f"{metric} {shown(value)} {sign} {shown(bound)}{basis(criterion, theirs, whose)}"
    if missing <= ROUNDING * max(1.0, abs(bound)):
        return Finding(metric, True, f"{held}: met")
    return Finding(metric, False, f"{held}: missed by {shown(missing)}", share(missing, bound))


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
        parts.append(f"{shown(given)} of {whose} {shown(theirs)}" if criterion.by == "share" else f"{given:+.4g} to {whose} {shown(theirs)}")
    if criterion.tolerance:
        parts.append(f"tolerance {shown(criterion.tolerance)}")
    return f" ({', '.join(parts)})" if parts else ""


def tested(criterion: Criterion, gain: Gain | None, whose: str) -> Finding:
    """Hold the interval of a paired gain against the margin of a test."""
    metric, margin = criterion.metric, -criterion.tolerance if criterion.test == "non-inferiority" else criterion.tolerance
    if gain is None:
        return Finding(metric, False, f"{metric} could not be compared row by row with {whose}: not met", UNKNOWN)
    word = "no worse than" if criterion.test == "non-inferiority" else "better than"
    held = f"{metric} {gain.value:+.4g} [{gain.low:+.4g}, {gain.high:+.4g}] to {whose}, {word} by {shown(criterion.tolerance)}"
    met = gain.low >= margin if criterion.test == "non-inferiority" else gain.low > margin
    if met:
        return Finding(metric, True, f"{held}: met")
    worse = gain.high < min(margin, 0.0)
    return Finding(metric, False, f"{held}: {'certainly worse, ' if worse else ''}missed by {shown(margin - gain.low)}", margin - gain.low, worse)


def figure(row: Mapping[str, Any], metric: str) -> float | None:
    """Return one figure of a candidate; None where it is missing, unknown or undefined."""
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
