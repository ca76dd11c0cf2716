"""Evaluation of one criterion for one candidate: met or missed, the shortfall, and a sentence. Pure functions.

A bound is absolute, or a share of the teacher's or the champion's figure, or a difference to it. A bound on quality is
compared with the worse end of the figure's confidence interval, unless the criterion sets ``reading: mean``; for
``retained`` that is non-inferiority by a share of the teacher's score (of an error, the teacher's over ours). A test
reads the interval of a paired difference, with its sign set so that more is better (a gain). A candidate is
non-inferior if it certainly loses no more than the tolerance, and superior if it certainly gains more than the
tolerance (Piaggio et al. 2012, "Reporting of noninferiority and equivalence randomized trials"). A criterion on an
unknown figure is not met.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tasks.gate.row import GateRow, timed_otherwise
from tasks.recipe.judging import COSTS, FIGURES, Criterion
from tasks.results.record import UNKNOWN_COST
from tasks.scoring.quality.gain import Gain, Unread

PACED = ("latency_ms", "speedup", "joules", "ms_per_text", "token_ms")
"""Figures that depend on the duration of an inference."""
UNKNOWN = 1.0  # relative shortfall of an unknown figure: as bad as missing the whole bound
ROUNDING = 1e-12  # rounding error allowed for a sum of decimal fractions
LEDGER = {"dollars": "dollars_on_demand"}
"""Names of the ledger's figures, where they differ from the gate's."""


@dataclass(frozen=True)
class Finding:
    """The result of one criterion for one candidate."""

    metric: str
    met: bool
    reason: str
    shortfall: float = 0.0
    """The missing amount as a share of the bound, so that shortfalls in quality, time and size can be added up."""
    worse: bool = False
    """A test shows that the candidate is certainly worse than its reference, by more than the tolerance."""


@dataclass(frozen=True)
class Champion:
    """The model that holds the alias, in the form that criteria read."""

    version: str
    checkpoint: str
    row: GateRow
    comparable: bool = True
    """It was evaluated on exactly the rows of this gate, and was not trained on any of them."""
    why: str = "was evaluated on other rows"
    """The reason why it is not comparable."""
    on: str = ""
    """The rows on which a test compares it, in words; empty if all of them."""


def evaluate_criterion(
    criterion: Criterion,
    candidate: GateRow,
    teacher: GateRow,
    champion: Champion | None = None,
    read: Gain | Unread | None = None,
    rivals: int = 1,
) -> Finding:
    """Evaluate one criterion for a candidate; ``read`` is the interval that the criterion reads, widened for the number
    of ``rivals`` (see ``confidence_for``)."""
    metric, gain = criterion.metric, read if isinstance(read, Gain) else None
    unread = f" ({read.reason})" if isinstance(read, Unread) else ""
    if criterion.reference == "champion":
        if champion is None:
            return Finding(metric, True, f"{metric}: no champion yet: met")
        if champion.checkpoint == candidate.checkpoint:
            return Finding(metric, True, f"{metric}: the candidate is the champion itself: met")
        if not champion.comparable and criterion.is_quality and (criterion.test is None or gain is None):
            return Finding(
                metric, False, f"{metric}: the champion, version {champion.version}, {champion.why}: not met", UNKNOWN
            )
    if metric in PACED and (trouble := unread_pace(candidate, champion if criterion.reference == "champion" else None)):
        return Finding(metric, False, f"{metric} {trouble}: not met", UNKNOWN)
    whose = (
        f"champion v{champion.version}'s{champion.on}"
        if champion and criterion.reference == "champion"
        else "the teacher's"
    )
    if criterion.test is not None:
        return tested(criterion, gain, whose, rivals, unread)
    reference = champion.row if champion is not None and criterion.reference == "champion" else teacher
    theirs = None if criterion.reference is None else figure(reference, metric)
    return bounded(criterion, figure(candidate, metric), theirs, whose, gain, rivals, unread)


def unread_pace(candidate: GateRow, champion: Champion | None) -> str:
    """Return the reason why a figure of speed decides nothing, alone or beside a champion's; empty if there is none."""
    if candidate.unsteady:
        return "is unsteady"
    apart = timed_otherwise(candidate, champion.row) if champion is not None else ""
    return f"and that of the champion, version {champion.version}, were measured {apart}" if champion and apart else ""


def confidence_for(criterion: Criterion, rivals: int) -> float:
    """Return the confidence level for one of ``rivals`` candidates, such that all of their intervals hold jointly at
    the criterion's level.

    This is the first step of Holm 1979, which divides the error probability by the number of candidates (Bonferroni);
    ``verdicts.step_down`` takes the next steps.
    """
    return 1 - (1 - criterion.confidence) / rivals


def bounded(
    criterion: Criterion,
    value: float | None,
    theirs: float | None,
    whose: str,
    read: Gain | None = None,
    rivals: int = 1,
    unread: str = "",
) -> Finding:
    """Compare a figure, or the worse end of its interval, with its bound; ``unread`` says why there is no interval."""
    metric = criterion.metric
    if value is None:
        return Finding(metric, False, f"{metric} is unknown{unread}: not met", UNKNOWN)
    if criterion.reference is not None and theirs is None:
        return Finding(metric, False, f"{metric} {format_figure(value)}, but {whose} is unknown: not met", UNKNOWN)
    if criterion.reads_interval and read is None:
        said = f"{metric} {format_figure(value)}, but its interval is unknown{unread}: not met"
        return Finding(metric, False, said, UNKNOWN)
    bound, sign = bound_of(criterion, theirs), "≥" if criterion.at_least is not None else "≤"
    held, counted = f"{metric} {format_figure(value)}", value
    where = " by the mean" if criterion.is_quality else ""
    if criterion.reads_interval and read is not None:
        counted, end = (read.low, "lower") if sign == "≥" else (read.high, "upper")
        held, where = (
            f"{held} [{format_figure(read.low)}, {format_figure(read.high)}]",
            f" at its {end} end{level(criterion, rivals)}",
        )
    missing = (bound - counted if sign == "≥" else counted - bound) - criterion.tolerance
    held = f"{held} {sign} {format_figure(bound)}{basis(criterion, theirs, whose)}{where}"
    if missing <= ROUNDING * max(1.0, abs(bound)):
        return Finding(metric, True, f"{held}: met")
    return Finding(metric, False, f"{held}: missed by {format_figure(missing)}", share(missing, bound))


def level(criterion: Criterion, rivals: int) -> str:
    """Return the confidence level in words if it is corrected for several candidates; empty for a single one."""
    return f", {100 * confidence_for(criterion, rivals):.4g} % for {rivals} candidates" if rivals > 1 else ""


def bound_of(criterion: Criterion, theirs: float | None) -> float:
    """Return the bound in the metric's own unit."""
    bound = criterion.at_least if criterion.at_least is not None else criterion.at_most
    assert bound is not None
    if theirs is None:
        return bound
    return theirs * bound if criterion.by == "share" else theirs + bound


def basis(criterion: Criterion, theirs: float | None, whose: str) -> str:
    """Return the origin of a relative bound and the tolerance, in words."""
    given = criterion.at_least if criterion.at_least is not None else criterion.at_most
    parts = []
    if theirs is not None and given is not None:
        parts.append(
            f"{format_figure(given)} of {whose} {format_figure(theirs)}"
            if criterion.by == "share"
            else f"{given:+.4g} to {whose} {format_figure(theirs)}"
        )
    if criterion.tolerance:
        parts.append(f"tolerance {format_figure(criterion.tolerance)}")
    return f" ({', '.join(parts)})" if parts else ""


def tested(criterion: Criterion, gain: Gain | None, whose: str, rivals: int = 1, unread: str = "") -> Finding:
    """Compare the interval of a paired gain with the margin of a test; ``unread`` says why there is no interval."""
    metric, margin = (
        criterion.metric,
        -criterion.tolerance if criterion.test == "non-inferiority" else criterion.tolerance,
    )
    if gain is None:
        said = f"{metric} could not be compared row by row with {whose}{unread}: not met"
        return Finding(metric, False, said, UNKNOWN)
    word = "no worse than" if criterion.test == "non-inferiority" else "better than"
    held = (
        f"{metric} {gain.value:+.4g} [{gain.low:+.4g}, {gain.high:+.4g}] to {whose}, {word} by "
        f"{format_figure(criterion.tolerance)}{level(criterion, rivals)}"
    )
    met = gain.low >= margin if criterion.test == "non-inferiority" else gain.low > margin
    if met:
        return Finding(metric, True, f"{held}: met")
    worse = gain.high < min(margin, 0.0)
    return Finding(
        metric,
        False,
        f"{held}: {'certainly worse, ' if worse else ''}missed by {format_figure(margin - gain.low)}",
        margin - gain.low,
        worse,
    )


def figure(row: GateRow, metric: str) -> float | None:
    """Return one figure of a candidate; None if it is missing, unknown, undefined or unsteady."""
    if metric in PACED and row.unsteady:
        return None
    if metric in COSTS:
        found = (row.cost or UNKNOWN_COST).amounts().get(LEDGER.get(metric, metric))
        value = None if found is None else found.value
    else:
        value = row.figures[metric] if metric in FIGURES else row.metrics.get(metric)
    return None if value is None or not math.isfinite(value) else float(value)


def share(missing: float, bound: float) -> float:
    """Return a shortfall as a share of its bound, or the shortfall itself if the bound is zero."""
    return missing / abs(bound) if bound else missing


def format_figure(value: float) -> str:
    """Format a figure for people: 10,000 and more without decimals, smaller ones with four digits."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
