"""The gate: what becomes of every candidate of a run, and why. Pure: figures in, words out.

| verdict    | when |
|------------|------|
| ANOMALOUS  | too good to be believed: certainly better than the teacher by more than ``too_good``, a perfect score, or the same rows in training and here |
| REGRESSION | a test shows it certainly worse than what it is held to, by more than the tolerance |
| INFEASIBLE | it misses a goal; of a run in which everybody does, the one with the least total shortfall (each as a share of its bound) comes closest |
| ACCEPT     | it meets every goal |

The first that holds is said. Baselines are scored for comparison and get no verdict; exports get one, but never an alias of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tasks.errors import RecipeError
from tasks.gate.criteria import Champion, Finding, Gain, figure, weigh
from tasks.recipe import COSTS, FIGURES, Criterion, Gate

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


@dataclass(frozen=True)
class Evidence:
    """What the gate weighs beside the figures of candidates and teacher."""

    champion: Champion | None = None
    gains: Mapping[tuple[str, Criterion], Gain] = field(default_factory=dict)
    """Paired differences that tests read, by candidate and criterion."""
    rows: int = 0
    """Rows of the gate's split."""
    overlaps: Mapping[str, int] = field(default_factory=dict)
    """How many of them also stand in what students learn from, by where."""


def decide(candidates: Sequence[Mapping[str, Any]], teacher: Mapping[str, Any], gate: Gate, evidence: Evidence | None = None) -> list[Decision]:
    """Judge every candidate; of those accepted, the preferred one is the run's champion, and of none, the one that misses least comes closest."""
    for criterion in gate.criteria:
        require_known(criterion.metric, teacher)
    decisions = [judge(candidate, teacher, gate, evidence or Evidence()) for candidate in candidates]
    named = [number for number, candidate in enumerate(candidates) if candidate["role"] not in UNNAMED]
    accepted = [number for number in named if decisions[number].accepted]
    if accepted:
        best = min(accepted, key=lambda number: preference(candidates[number], gate.prefer))
        decisions[best] = replace(decisions[best], champion=True)
        return decisions
    honest = [number for number in named if decisions[number].verdict != ANOMALOUS]
    if honest:
        best = min(honest, key=lambda number: (decisions[number].shortfall, preference(candidates[number], gate.prefer)))
        decisions[best] = closest(decisions[best])
    return decisions


def closest(decision: Decision) -> Decision:
    """Say that nobody meets every goal and that this one misses least."""
    said = f"no candidate meets every goal; this one comes closest, {decision.shortfall:.1%} short in all"
    return replace(decision, closest=True, reasons=(*decision.reasons, said))


def judge(candidate: Mapping[str, Any], teacher: Mapping[str, Any], gate: Gate, evidence: Evidence) -> Decision:
    """Hold one candidate against every criterion, and ask whether it is too good to be true."""
    values = {criterion.metric: figure(candidate, criterion.metric) for criterion in gate.criteria}
    if candidate["role"] == "baseline":
        return Decision(candidate["name"], None, (BASELINE,), values=values)
    gains = {criterion: evidence.gains.get((candidate["name"], criterion)) for criterion in gate.criteria}
    findings = [weigh(criterion, candidate, teacher, evidence.champion, gains[criterion]) for criterion in gate.criteria]
    wonders = [*too_good(candidate, gate, evidence.rows), *leaks(gate, evidence)]
    reasons = (*(finding.reason for finding in findings), *(said for _, said in wonders))
    short = sum(finding.shortfall for finding in findings)
    return Decision(candidate["name"], verdict(findings, any(odd for odd, _ in wonders)), reasons, shortfall=short, values=values)


def verdict(findings: Sequence[Finding], anomalous: bool) -> str:
    """Return the first word that holds."""
    if anomalous:
        return ANOMALOUS
    if any(finding.worse for finding in findings):
        return REGRESSION
    return ACCEPT if all(finding.met for finding in findings) else INFEASIBLE


def too_good(candidate: Mapping[str, Any], gate: Gate, rows: int) -> list[tuple[bool, str]]:
    """Return what is too good to be believed: a great lead on the teacher, or not one mistake; ``lead`` is the gain of the headline score."""
    lead, found = candidate.get("lead"), []
    if lead is not None and lead["low"] is not None and lead["low"] > gate.too_good:
        found.append((True, f"certainly {lead['low']:.4g} better than the teacher, more than {gate.too_good:.4g}: too good, look for a leak"))
    if candidate.get("perfect") and rows >= gate.perfect_rows:
        found.append((True, f"not one mistake on {rows:,} rows: too good, look for a leak"))
    return found


def leaks(gate: Gate, evidence: Evidence) -> list[tuple[bool, str]]:
    """Say how many of the rows that judge also stand in what students learn from, and whether that is too many."""
    found = []
    for where, count in evidence.overlaps.items():
        odd = count > gate.leakage * evidence.rows
        if count:
            word = "too many" if odd else "few enough"
            found.append((odd, f"{count:,} of the {evidence.rows:,} rows that judge also stand in the {where} (at most {gate.leakage:.1%}): {word}"))
    return found


def require_known(metric: str, teacher: Mapping[str, Any]) -> None:
    """Refuse a metric that this task does not have."""
    if metric not in (*FIGURES, *COSTS) and metric not in teacher["metrics"]:
        raise RecipeError(f"gate: unknown metric {metric!r}; legal are {', '.join([*FIGURES, *COSTS, *teacher['metrics']])}")


def preference(candidate: Mapping[str, Any], prefer: str) -> tuple[float, float]:
    """Return what is smallest for the preferred candidate: unknown figures come last, equal ones are told apart by quality."""
    cost, quality = COST[prefer](candidate), candidate.get("quality", candidate["headline"])
    return math.inf if cost is None else cost, math.inf if quality is None or math.isnan(quality) else -quality


def size(candidate: Mapping[str, Any]) -> float | None:
    """Return the bytes of a candidate's weights."""
    return figure(candidate, "bytes")


def slowness(candidate: Mapping[str, Any]) -> float | None:
    """Return less for the faster: by the speed-up over the teacher, which was timed in turn and so means the same on another machine; else by time."""
    speedup = figure(candidate, "speedup")
    return figure(candidate, "latency_ms") if speedup is None else -speedup


def nothing(candidate: Mapping[str, Any]) -> float | None:
    """Leave the choice to quality."""
    return 0.0


COST = {"smallest": size, "fastest": slowness, "best": nothing}
