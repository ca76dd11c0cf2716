"""The Pareto front: the models that no other model dominates. A model dominates another if it is at least as good in
score and in cost, and better in one of the two.

Costs are latency, size and energy. A model of unknown cost is left out of that front and listed by name, never drawn at
zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.results.row import Amount, ResultRow
from tasks.results.run import RunResult
from tasks.task_types.types import ERROR_METRICS


@dataclass(frozen=True)
class Point:
    """One model: its cost, and its score with bounds."""

    name: str
    role: str
    cost: float
    score: float
    low: float | None = None
    high: float | None = None
    champion: bool = False


@dataclass(frozen=True)
class Front:
    """One chart: name and unit of the cost, the points, the names of those on the front, and the models left out."""

    title: str
    unit: str
    points: tuple[Point, ...]
    best: frozenset[str]
    left_out: tuple[str, ...]
    note: str = ""
    unsteady: tuple[str, ...] = ()
    """Models left out because the cost depends on an unsteady latency."""


def front(points: Sequence[Point], *, less_is_better: bool = False) -> list[Point]:
    """Return the points that no other dominates, the cheapest first; points with equal score and cost all remain."""
    sign = -1 if less_is_better else 1

    def dominated(one: Point) -> bool:
        return any(
            other.cost <= one.cost
            and sign * other.score >= sign * one.score
            and (other.cost < one.cost or sign * other.score > sign * one.score)
            for other in points
        )

    return sorted((one for one in points if not dominated(one)), key=lambda one: (one.cost, sign * one.score, one.name))


def fronts(result: RunResult) -> list[Front]:
    """Return the three charts of a run: score against latency, size and energy."""
    inference = any(energy_of_inference(model) is not None for model in result.models)
    energy = energy_of_inference if inference else energy_of_training
    trained = "energy of its own training stages; the energy of one inference is unknown"
    note = "energy of one inference, estimated: its latency times a constant" if inference else trained
    return [
        picture(result, "latency", "ms", lambda model: number(model.latency_ms), timed=True),
        picture(result, "size of the weights", "MB", lambda model: scaled(model.bytes, 1e-6)),
        picture(result, "energy", "J" if inference else "Wh", energy, note, timed=inference),
    ]


def picture(
    result: RunResult,
    title: str,
    unit: str,
    cost: Callable[[ResultRow], float | None],
    note: str = "",
    *,
    timed: bool = False,
) -> Front:
    """Return one chart. Models without a score or without this cost are left out by name; if the cost depends on the
    latency (``timed``), so are models of unsteady latency."""
    shaky = tuple(model.name for model in result.models if timed and model.unsteady)
    steady = [model for model in result.models if model.name not in shaky]
    found = [point_of(model, result.split, cost(model)) for model in steady]
    points = tuple(point for point in found if point is not None)
    best = frozenset(point.name for point in front(points, less_is_better=result.headline in ERROR_METRICS))
    out = tuple(model.name for model, point in zip(steady, found, strict=True) if point is None)
    return Front(title, unit, points, best, out, note, shaky)


def point_of(model: ResultRow, split: str, cost: float | None) -> Point | None:
    """Return a model's point; None unless both figures are known."""
    score = model.score(split)
    value = number(score.value)
    if cost is None or value is None or cost <= 0:
        return None
    return Point(
        model.name,
        model.role,
        cost,
        value,
        number(score.low),
        number(score.high),
        model.gate == "champion",
    )


def energy_of_inference(model: ResultRow) -> float | None:
    """Return the energy of one inference in joules, if known."""
    return number(model.cost.joules) if model.cost else None


def energy_of_training(model: ResultRow) -> float | None:
    """Return the energy of a candidate's own training stages in watt-hours, if known."""
    return scaled(model.cost.kwh, 1e3) if model.cost else None


def number(value: Any) -> float | None:
    """Return a finite number, also from a figure of the ledger; None for any other value."""
    if isinstance(value, (Mapping, Amount)):
        value = value.value if isinstance(value, Amount) else value.get("value")
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def scaled(value: Any, factor: float) -> float | None:
    """Return a number multiplied by a factor; None if there is no number."""
    found = number(value)
    return None if found is None else found * factor
