"""Which of the chosen shapes cost more than the budget once they are measured. A latency is predicted from parts, and
where graphs are served the gate, which judges checkpoints, does not bound it. Plain values in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tasks.recipe.makers.search import FIGURES_OF_BUDGETS, Bound, ShapeSearch
from tasks.results.row import ResultRow
from tasks.results.search import JudgedShape, LatencyTable, SearchResult
from tasks.search.space import most_of_each_budget

COUNTED_OR_TIMED = ("latency_ms", "bytes", "flops", "memory")
"""Budgets whose figures are in a row of the results."""
TIMED_BUDGETS = ("latency_ms", "joules")
"""Budgets whose figures depend on how long an inference takes."""


def with_notes_over_budget(result: SearchResult, search: ShapeSearch, rows: Sequence[ResultRow]) -> SearchResult:
    """Return the answer of a search with a note on each candidate that was measured over the budget in its format;
    as it is where checkpoints alone are served, of which the gate says so."""
    if result.table is None or search.space.formats == ("torch",):
        return result
    energy = energy_of_ms(result.shapes)
    known = [one for one in bounds_on_graphs(search) if one.name != "joules" or energy is not None]
    limits = most_of_each_budget(known, result.table, energy)
    chosen = [one for one in result.shapes if one.state == "candidate"]
    notes = [note for one in chosen if (note := note_over_budget(one, limits, served_row(one, rows)))]
    return result.replaced(notes=(*result.notes, *notes))


def limits_of_graphs(search: ShapeSearch, table: LatencyTable, joules_per_ms: float | None) -> dict[str, float]:
    """Return the most that a graph may have of each figure, by its name in a row of the results; none where checkpoints
    are served. Nobody meters a graph's joules, which bound its latency."""
    if search.space.formats == ("torch",):
        return {}
    limits = most_of_each_budget(bounds_on_graphs(search), table, joules_per_ms)
    joules = limits.pop("joules", None)
    if joules is not None and joules_per_ms is not None:
        limits["latency_ms"] = min(limits.get("latency_ms", math.inf), joules / joules_per_ms)
    return {FIGURES_OF_BUDGETS.get(name, name): most for name, most in limits.items()}


def bounds_on_graphs(search: ShapeSearch) -> list[Bound]:
    """Return the bounds of a budget that hold for measured graphs: of a teacher's memory no more than the weights is
    known, so that a share of it bounds nothing."""
    return [one for one in search.require_budget() if not (one.name == "memory" and one.of_teacher)]


def energy_of_ms(shapes: Sequence[JudgedShape]) -> float | None:
    """Return the joules of a millisecond by which those of shapes were predicted; None where they are not known."""
    return next((one.joules / one.ms for one in shapes if one.joules is not None and one.ms > 0), None)


def measured_figures(shape: JudgedShape, row: ResultRow | None) -> dict[str, float | None]:
    """Return what was measured of a shape, by the name of a budget. Joules follow the latency, of a graph that nobody
    meters."""
    found = {name: getattr(row, FIGURES_OF_BUDGETS.get(name, name), None) for name in COUNTED_OR_TIMED}
    energy, latency = energy_of_ms([shape]), found["latency_ms"]
    return {**found, "joules": None if energy is None or latency is None else latency * energy}


def served_row(shape: JudgedShape, rows: Sequence[ResultRow]) -> ResultRow | None:
    """Return the figures of a shape in the format in which it fits; None where they are not there, as in a plan."""
    if shape.format == "torch":
        return next((row for row in rows if row.name == shape.name), None)
    graphs = (row for row in rows if row.of == shape.name and row.export is not None)
    return next((row for row in graphs if row.export is not None and row.export.format == shape.format), None)


def note_over_budget(shape: JudgedShape, limits: Mapping[str, float], row: ResultRow | None) -> str:
    """Return a note on a shape that was measured over a limit; empty if it was not."""
    measured = measured_figures(shape, row)
    over = [
        f"{name} is {value:.4g}{' (unsteady)' if row and row.unsteady and name in TIMED_BUDGETS else ''}, and "
        f"{limits[name]:.4g} is asked"
        for name in limits
        if (value := measured[name]) is not None and value > limits[name]
    ]
    return f"{shape.name} in {shape.format} was measured over the budget: {'; '.join(over)}" if over else ""
