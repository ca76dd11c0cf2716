"""Chosen shapes beside those that the recipe has by hand: which is no worse in score, latency and bytes than another,
and better in one. Figures are measured, of the forms in which models are served. Plain values in and out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tasks.results.row import ResultRow
from tasks.results.search import SearchResult, ShapeByHand
from tasks.search.measured_costs import served_row
from tasks.search.ranking import dominated
from tasks.task_types.types import ERROR_METRICS


class Served(NamedTuple):
    """A form in which a model is served: what is to be small, and whether its latency decides something."""

    costs: tuple[float, float, float]
    """Latency, bytes, and the score with the sign of an error."""
    steady: bool


def with_shapes_by_hand(
    result: SearchResult, names: Sequence[str], rows: Sequence[ResultRow], split: str
) -> SearchResult:
    """Return the answer of a search with how its candidates stand to the candidates ``names`` of the recipe on a split;
    as it is in a plan, and without such candidates."""
    chosen = {
        one.name: point
        for one in result.shapes
        if one.state == "candidate" and (point := served(served_row(one, rows), split)) is not None
    }
    compared = [shape_by_hand(name, forms_of(name, result, rows, split), chosen) for name in names]
    return result.replaced(by_hand=tuple(one for one in compared if one is not None)) if chosen else result


def forms_of(name: str, result: SearchResult, rows: Iterable[ResultRow], split: str) -> list[Served]:
    """Return the forms of a candidate in the formats of the search."""
    own = [
        row
        for row in rows
        if (row.name == name and "torch" in result.formats)
        or (row.of == name and row.export is not None and row.export.format in result.formats and row.export.published)
    ]
    return [point for row in own if (point := served(row, split)) is not None]


def served(row: ResultRow | None, split: str) -> Served | None:
    """Return a row as a served form; None where one of its figures is not known."""
    if row is None or row.latency_ms is None or row.bytes is None or row.score(split).value is None:
        return None
    sign = 1.0 if row.headline in ERROR_METRICS else -1.0
    costs = float(row.latency_ms), float(row.bytes), sign * float(row.score(split).value or 0.0)
    return Served(costs, not row.unsteady)


def shape_by_hand(name: str, forms: Sequence[Served], chosen: Mapping[str, Served]) -> ShapeByHand | None:
    """Return which chosen shapes one form of a candidate dominates, and which dominate all of its forms; None for one
    that is not served in a format of the search."""
    if not forms:
        return None
    return ShapeByHand(
        name=name,
        dominates=tuple(one for one, its in chosen.items() if dominated(its.costs, [form.costs for form in forms])),
        dominated_by=tuple(
            one for one, its in chosen.items() if all(dominated(form.costs, [its.costs]) for form in forms)
        ),
        unsteady=not all(one.steady for one in (*forms, *chosen.values())),
    )
