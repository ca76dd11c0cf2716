"""Which of the chosen shapes cost more than the budget once they are measured. A latency is predicted from parts, and
where graphs are served the gate, which judges checkpoints, does not bound it. Plain values in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.recipe.makers.search import FIGURES_OF_BUDGETS, ShapeSearch
from tasks.results.row import ResultRow
from tasks.results.search import JudgedShape, SearchResult
from tasks.search.space import most_of_each_budget


def with_notes_over_budget(result: SearchResult, search: ShapeSearch, rows: Sequence[ResultRow]) -> SearchResult:
    """Return the answer of a search with a note on each candidate that was measured over the budget in its format;
    as it is where checkpoints alone are served, of which the gate says so."""
    if result.table is None or search.space.formats == ("torch",):
        return result
    # Joules follow the latency; of a share of memory no more than the weights is known.
    bounds = [
        one for one in search.require_budget() if one.name != "joules" and not (one.name == "memory" and one.of_teacher)
    ]
    limits = most_of_each_budget(bounds, result.table, search.space.formats[0], None)
    chosen = [one for one in result.shapes if one.state == "candidate"]
    notes = [note for one in chosen if (note := note_over_budget(one, limits, served_row(one, rows)))]
    return result.replaced(notes=(*result.notes, *notes))


def served_row(shape: JudgedShape, rows: Sequence[ResultRow]) -> ResultRow | None:
    """Return the figures of a shape in the format in which it fits; None where they are not there, as in a plan."""
    if shape.format == "torch":
        return next((row for row in rows if row.name == shape.name), None)
    graphs = (row for row in rows if row.of == shape.name and row.export is not None)
    return next((row for row in graphs if row.export is not None and row.export.format == shape.format), None)


def note_over_budget(shape: JudgedShape, limits: Mapping[str, float], row: ResultRow | None) -> str:
    """Return a note on a shape that was measured over a limit; empty if it was not."""
    measured = {name: getattr(row, FIGURES_OF_BUDGETS.get(name, name), None) for name in limits}
    over = [
        f"{name} is {value:.4g}{' (unsteady)' if row and row.unsteady and name == 'latency_ms' else ''}, and "
        f"{limits[name]:.4g} is asked"
        for name, value in measured.items()
        if value is not None and value > limits[name]
    ]
    return f"{shape.name} in {shape.format} was measured over the budget: {'; '.join(over)}" if over else ""
