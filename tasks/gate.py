"""The gate: which candidates may be called champion, and why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.errors import RecipeError
from tasks.recipe import Criterion, Gate

FIGURES = ("retained", "parameters", "bytes", "flops", "latency_ms", "speedup", "memory_bytes")


@dataclass(frozen=True)
class Decision:
    """The gate's word on one candidate, with a sentence for every criterion."""

    name: str
    accepted: bool
    reasons: tuple[str, ...]
    champion: bool = False


def decide(candidates: Sequence[Mapping[str, Any]], teacher: Mapping[str, Any], gate: Gate) -> list[Decision]:
    """Judge every candidate; of those accepted, the preferred one becomes champion. Baselines are never accepted."""
    decisions = [judge(candidate, teacher, gate) for candidate in candidates]
    accepted = [(decision, candidate) for decision, candidate in zip(decisions, candidates, strict=True) if decision.accepted]
    if not accepted:
        return decisions
    best = min(accepted, key=lambda pair: preference(pair[1], gate.prefer))[0].name
    return [replace(decision, champion=decision.name == best) for decision in decisions]


def judge(candidate: Mapping[str, Any], teacher: Mapping[str, Any], gate: Gate) -> Decision:
    """Hold one candidate against every criterion."""
    if candidate["role"] == "baseline":
        return Decision(candidate["name"], False, ("a baseline is scored for comparison and never becomes champion",))
    verdicts = [weigh(criterion, candidate, teacher) for criterion in gate.criteria]
    return Decision(candidate["name"], all(met for met, _ in verdicts), tuple(reason for _, reason in verdicts))


def weigh(criterion: Criterion, candidate: Mapping[str, Any], teacher: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether one criterion is met, and a sentence."""
    value, bound = figure(candidate, criterion.metric), criterion.at_least if criterion.at_least is not None else criterion.at_most
    sign = "≥" if criterion.at_least is not None else "≤"
    assert bound is not None
    if criterion.of_teacher:
        theirs = figure(teacher, criterion.metric)
        bound = None if theirs is None else bound * theirs
    if value is None or bound is None:
        return False, f"{criterion.metric} is unknown: not met"
    met = value >= bound if sign == "≥" else value <= bound
    missed = "met" if met else f"missed by {abs(value - bound):.4g}"
    return met, f"{criterion.metric} {value:.4g} {sign} {bound:.4g}: {missed}"


def figure(row: Mapping[str, Any], metric: str) -> float | None:
    """Return one figure of a candidate."""
    if metric in FIGURES:
        return row.get(metric)
    if metric in row["metrics"]:
        return float(row["metrics"][metric])
    raise RecipeError(f"gate: unknown metric {metric!r}; legal are {', '.join([*FIGURES, *row['metrics']])}")


def preference(candidate: Mapping[str, Any], prefer: str) -> tuple[float, float]:
    """Return what is smallest for the preferred candidate; equal ones are told apart by quality."""
    order = {"smallest": candidate["bytes"], "fastest": candidate["latency_ms"], "best": 0.0}
    return order[prefer], -candidate["headline"]
