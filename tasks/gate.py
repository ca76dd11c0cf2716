"""The gate: which candidates may be called champion, and why not. Pure: figures in, words out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tasks.errors import RecipeError
from tasks.recipe import Criterion, Gate

FIGURES = ("retained", "parameters", "bytes", "flops", "latency_ms", "speedup", "memory_bytes")
BASELINE = "a baseline is scored for comparison and never becomes champion"


@dataclass(frozen=True)
class Decision:
    """The gate's word on one candidate, with a sentence for every criterion."""

    name: str
    accepted: bool
    reasons: tuple[str, ...]
    champion: bool = False
    values: Mapping[str, float | None] = field(default_factory=dict)
    """The figures that were weighed, by the criterion's metric; None where one is unknown."""


def decide(candidates: Sequence[Mapping[str, Any]], teacher: Mapping[str, Any], gate: Gate) -> list[Decision]:
    """Judge every candidate; of those accepted, the preferred one becomes champion. Baselines are never accepted."""
    for criterion in gate.criteria:
        require_known(criterion.metric, teacher)
    decisions = [judge(candidate, teacher, gate) for candidate in candidates]
    accepted = [number for number, decision in enumerate(decisions) if decision.accepted]
    if not accepted:
        return decisions
    best = min(accepted, key=lambda number: preference(candidates[number], gate.prefer))
    return [replace(decision, champion=number == best) for number, decision in enumerate(decisions)]


def judge(candidate: Mapping[str, Any], teacher: Mapping[str, Any], gate: Gate) -> Decision:
    """Hold one candidate against every criterion."""
    values = {criterion.metric: figure(candidate, criterion.metric) for criterion in gate.criteria}
    if candidate["role"] == "baseline":
        return Decision(candidate["name"], False, (BASELINE,), values=values)
    verdicts = [weigh(criterion, candidate, teacher) for criterion in gate.criteria]
    return Decision(candidate["name"], all(met for met, _ in verdicts), tuple(reason for _, reason in verdicts), values=values)


def weigh(criterion: Criterion, candidate: Mapping[str, Any], teacher: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether one criterion is met, and a sentence."""
    value, bound = figure(candidate, criterion.metric), bound_of(criterion, teacher)
    sign = "≥" if criterion.at_least is not None else "≤"
    if value is None:
        return False, f"{criterion.metric} is unknown: not met"
    if bound is None:
        return False, f"{criterion.metric} {shown(value)}, but the teacher's is unknown: not met"
    met = value >= bound if sign == "≥" else value <= bound
    return met, f"{criterion.metric} {shown(value)} {sign} {shown(bound)}: {'met' if met else f'missed by {shown(abs(value - bound))}'}"


def bound_of(criterion: Criterion, teacher: Mapping[str, Any]) -> float | None:
    """Return the bound of a criterion; a share of the teacher's value is unknown where that value is."""
    bound = criterion.at_least if criterion.at_least is not None else criterion.at_most
    theirs = figure(teacher, criterion.metric) if criterion.of_teacher else 1.0
    return None if bound is None or theirs is None else bound * theirs


def figure(row: Mapping[str, Any], metric: str) -> float | None:
    """Return one figure of a candidate; None where it is missing or undefined."""
    value = row.get(metric) if metric in FIGURES else row["metrics"].get(metric)
    return None if value is None or not math.isfinite(value) else float(value)


def require_known(metric: str, teacher: Mapping[str, Any]) -> None:
    """Refuse a metric that this task does not have."""
    if metric not in FIGURES and metric not in teacher["metrics"]:
        raise RecipeError(f"gate: unknown metric {metric!r}; legal are {', '.join([*FIGURES, *teacher['metrics']])}")


def preference(candidate: Mapping[str, Any], prefer: str) -> tuple[float, float]:
    """Return what is smallest for the preferred candidate: unknown figures come last, equal ones are told apart by quality."""
    first = {"smallest": "bytes", "fastest": "latency_ms"}.get(prefer)
    cost, quality = figure(candidate, first) if first else 0.0, candidate["headline"]
    return math.inf if cost is None else cost, math.inf if quality is None or math.isnan(quality) else -quality


def shown(value: float) -> str:
    """Return a figure for people: large counts in full, the rest with four digits."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
