"""The gate: what becomes of every candidate of a run, and why. Pure: figures in, words out.

- ``ANOMALOUS``: too good to be believed: certainly better than the teacher by more than ``too_good``, a perfect score,
  or rows that overlap with learned ones.
- ``REGRESSION``: a test shows it certainly worse than what it is held to, by more than the tolerance.
- ``INFEASIBLE``: it misses a goal; of a run in which everybody does, the one with the least total shortfall (each as a
  share of its bound) comes closest.
- ``ACCEPT``: it meets every goal.

The first that holds is said. Baselines are scored for comparison and get no verdict; exports get one, but never an
alias of their own.

Of many candidates that are all too weak, one would look good enough by luck. So those that may be accepted are
corrected for together, by the level of their intervals, with Holm's step-down (Holm 1979, "A simple sequentially
rejective multiple test procedure"): whatever they have in common, the chance that even one that misses a goal by its
true quality is accepted is at most half of what the criterion's confidence leaves (2.5 % at 0.95). One candidate must
meet every criterion at once, which needs no correction (Berger 1982, "Multiparameter hypothesis testing and acceptance
sampling").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tasks.errors import RecipeError
from tasks.gate.criteria import Champion, Finding, confidence_for, figure, weigh
from tasks.gate.worst_of import Elsewhere, leaks_of_sets, worst_of
from tasks.recipe.judging import COSTS, FIGURES, Criterion, Gate
from tasks.scoring.quality.gain import Gain

ACCEPT, REGRESSION, ANOMALOUS, INFEASIBLE = "ACCEPT", "REGRESSION", "ANOMALOUS", "INFEASIBLE"
BASELINE = "a baseline is scored for comparison and never becomes champion"
UNNAMED = ("baseline", "export")
"""Roles that never become a version or an alias of their own."""


@dataclass(frozen=True)
class Decision:
    """The gate's word on one candidate, with a sentence for every criterion."""

    name: str
    verdict: str | None
    reasons: tuple[str, ...]
    champion: bool = False
    """The preferred one of those that this run's gate accepted."""
    closest: bool = False
    """Nobody was accepted, and this one misses least."""
    shortfall: float = 0.0
    """What it misses in all, each criterion as a share of its bound."""
    values: Mapping[str, float | None] = field(default_factory=dict)
    """The figures that were weighed, by the criterion's metric; None where one is unknown."""

    @property
    def accepted(self) -> bool:
        """Tell whether it may be called champion."""
        return self.verdict == ACCEPT


Read = Callable[[str, Criterion, float], Gain | None]
"""Returns the interval that a criterion reads of a candidate, by name, at a confidence; None where there is none."""


def nobody_knows(name: str, criterion: Criterion, confidence: float) -> Gain | None:
    """Return that there is no interval to be read."""
    return None


@dataclass(frozen=True)
class Evidence:
    """What the gate weighs beside the figures of candidates and teacher."""

    champion: Champion | None = None
    read: Read = nobody_knows
    """Intervals of bounds, in the metric's own unit, and of the paired differences that tests read."""
    rows: int = 0
    """Rows of the gate's split."""
    overlaps: Mapping[str, int] = field(default_factory=dict)
    """How many of them overlap with what students learn from, by where."""
    elsewhere: Elsewhere = Elsewhere()
    """The same of judging sets."""


def decide(
    candidates: Sequence[Mapping[str, Any]], teacher: Mapping[str, Any], gate: Gate, evidence: Evidence | None = None
) -> list[Decision]:
    """Judge every candidate; of those accepted, the preferred one is the run's champion, and of none, the one that
    misses least comes closest."""
    for criterion in gate.criteria:
        require_known(criterion.metric, teacher)
    decisions = step_down(candidates, teacher, gate, evidence or Evidence())
    named = [number for number, candidate in enumerate(candidates) if candidate["role"] not in UNNAMED]
    accepted = [number for number in named if decisions[number].accepted]
    if accepted:
        measure = measure_for(candidates[number] for number in accepted)
        best = min(accepted, key=lambda number: preference(candidates[number], gate.prefer, measure))
        decisions[best] = replace(decisions[best], champion=True)
        return decisions
    honest = [number for number in named if decisions[number].verdict != ANOMALOUS]
    if honest:
        measure = measure_for(candidates[number] for number in honest)
        best = min(
            honest,
            key=lambda number: (decisions[number].shortfall, preference(candidates[number], gate.prefer, measure)),
        )
        decisions[best] = closest(decisions[best])
    return decisions


def step_down(
    candidates: Sequence[Mapping[str, Any]], teacher: Mapping[str, Any], gate: Gate, evidence: Evidence
) -> list[Decision]:
    """Judge everybody, corrected for how many may be accepted: who is accepted leaves, and the rest is judged again as
    so many fewer (Holm 1979).

    Exports and whoever misses a goal that has no noise take nobody's place, and are read like the first step.
    """
    left = [
        number
        for number, candidate in enumerate(candidates)
        if candidate["role"] not in UNNAMED and not ruled_out(candidate, teacher, gate, evidence)
    ]
    decisions = [judge(candidate, teacher, gate, evidence, max(1, len(left))) for candidate in candidates]
    rest = [number for number in left if not decisions[number].accepted]
    while rest and len(rest) < len(left):
        left = rest
        for number in left:
            decisions[number] = judge(candidates[number], teacher, gate, evidence, len(left))
        rest = [number for number in left if not decisions[number].accepted]
    return decisions


def ruled_out(candidate: Mapping[str, Any], teacher: Mapping[str, Any], gate: Gate, evidence: Evidence) -> bool:
    """Tell whether a candidate misses a goal in which the rows that judge have no part, so that luck with them cannot
    help it."""
    return not all(
        weigh(criterion, candidate, teacher, evidence.champion).met
        for criterion in gate.criteria
        if not criterion.is_quality
    )


def closest(decision: Decision) -> Decision:
    """Say that nobody meets every goal and that this one misses least."""
    said = f"no candidate meets every goal; this one comes closest, {decision.shortfall:.1%} short in all"
    return replace(decision, closest=True, reasons=(*decision.reasons, said))


def judge(
    candidate: Mapping[str, Any], teacher: Mapping[str, Any], gate: Gate, evidence: Evidence, rivals: int = 1
) -> Decision:
    """Hold one candidate against every criterion, as one of so many ``rivals``, and ask whether it is too good to be
    true."""
    values = {
        criterion.metric: figure(candidate, criterion.metric) for criterion in gate.criteria if not criterion.worst_of
    }
    if candidate["role"] == "baseline":
        return Decision(candidate["name"], None, (BASELINE,), values=values)
    findings = [finding_of(criterion, candidate, teacher, gate, evidence, rivals) for criterion in gate.criteria]
    wonders = [
        *too_good(candidate, gate, evidence.rows),
        *leaks(gate, evidence),
        *leaks_of_sets(gate, evidence.elsewhere),
    ]
    reasons = (*(finding.reason for finding in findings), *(said for _, said in wonders))
    short = sum(finding.shortfall for finding in findings)
    return Decision(
        candidate["name"], verdict(findings, any(odd for odd, _ in wonders)), reasons, shortfall=short, values=values
    )


def finding_of(
    criterion: Criterion,
    candidate: Mapping[str, Any],
    teacher: Mapping[str, Any],
    gate: Gate,
    evidence: Evidence,
    rivals: int,
) -> Finding:
    """Return what one criterion says of one candidate, as one of so many: on the gate's split, or on the worst of
    several sets.

    Several sets need no wider intervals: a candidate must do on every one of them what the criterion asks, as it must
    meet every criterion.
    """
    read = partial(read_for, candidate["name"], criterion, evidence=evidence, rivals=rivals)
    if not criterion.worst_of:
        return weigh(criterion, candidate, teacher, evidence.champion, read(), rivals)
    found = {name: read(on=None if name == gate.split else name) for name in criterion.worst_of}
    return worst_of(criterion, candidate, teacher, gate.split, found, rivals)


def read_for(name: str, criterion: Criterion, evidence: Evidence, rivals: int, on: str | None = None) -> Gain | None:
    """Return the interval that a criterion reads of a candidate, at the level for so many of them; nothing where it
    reads none.

    It is read on the gate's split, or on a judging set.
    """
    if not criterion.reads_interval:
        return None
    confidence = confidence_for(criterion, rivals)
    return (
        evidence.read(name, criterion, confidence)
        if on is None
        else evidence.elsewhere.read(on, name, criterion, confidence)
    )


def verdict(findings: Sequence[Finding], anomalous: bool) -> str:
    """Return the first word that holds."""
    if anomalous:
        return ANOMALOUS
    if any(finding.worse for finding in findings):
        return REGRESSION
    return ACCEPT if all(finding.met for finding in findings) else INFEASIBLE


def too_good(candidate: Mapping[str, Any], gate: Gate, rows: int) -> list[tuple[bool, str]]:
    """Return what is too good to be believed: a great lead on the teacher, or not one mistake; ``lead`` is the gain of
    the headline score."""
    lead, found = candidate.get("lead"), []
    if lead is not None and lead["low"] is not None and lead["low"] > gate.too_good:
        found.append(
            (
                True,
                f"certainly {lead['low']:.4g} better than the teacher, more than {gate.too_good:.4g}: too good, "
                f"look for a leak",
            )
        )
    if candidate.get("perfect") and rows >= gate.perfect_rows:
        found.append((True, f"not one mistake on {rows:,} rows: too good, look for a leak"))
    return found


def leaks(gate: Gate, evidence: Evidence) -> list[tuple[bool, str]]:
    """Say how many of the rows that judge overlap with what students learn from, and whether that is too many."""
    found = []
    for where, count in evidence.overlaps.items():
        odd = count > gate.leakage * evidence.rows
        if count:
            word = "too many" if odd else "few enough"
            found.append(
                (
                    odd,
                    f"{count:,} of the {evidence.rows:,} rows that judge overlap with the {where} (at most "
                    f"{gate.leakage:.1%}): {word}",
                )
            )
    return found


def require_known(metric: str, teacher: Mapping[str, Any]) -> None:
    """Refuse a metric that this task does not have."""
    if metric not in (*FIGURES, *COSTS) and metric not in teacher["metrics"]:
        raise RecipeError(
            f"gate: unknown metric {metric!r}; legal are {', '.join([*FIGURES, *COSTS, *teacher['metrics']])}"
        )


def measure_for(candidates: Iterable[Mapping[str, Any]]) -> str:
    """Return by what quality is compared: the score on selection rows where all have one, for who is best on the rows
    that judge would be reported too well."""
    return "selection" if all(candidate.get("selection") is not None for candidate in candidates) else "quality"


def preference(candidate: Mapping[str, Any], prefer: str, measure: str = "quality") -> tuple[float, float]:
    """Return what is smallest for the preferred candidate: unknown figures come last, equal ones are told apart by
    quality, as ``measure_for`` says."""
    cost, quality = COST[prefer](candidate), candidate.get(measure, candidate["headline"])
    return math.inf if cost is None else cost, math.inf if quality is None or math.isnan(quality) else -quality


def size(candidate: Mapping[str, Any]) -> float | None:
    """Return the bytes of a candidate's weights."""
    return figure(candidate, "bytes")


def slowness(candidate: Mapping[str, Any]) -> float | None:
    """Return less for the faster: by the speed-up over the teacher, which was timed in turn and so means the same on
    another machine; else by time."""
    speedup = figure(candidate, "speedup")
    return figure(candidate, "latency_ms") if speedup is None else -speedup


def nothing(candidate: Mapping[str, Any]) -> float | None:
    """Leave the choice to quality."""
    return 0.0


COST = {"smallest": size, "fastest": slowness, "best": nothing}
