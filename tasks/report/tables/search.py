"""The answer of a search: how far to trust the latency table, and the shapes with their predicted costs and scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tasks.report.format.numbers import megabytes, plural
from tasks.results.row import Number
from tasks.results.search import JudgedShape, LatencyTable, SearchResult, ShapeByHand
from tasks.search.ranking import FEW_CANDIDATES, TRUSTED
from tasks.task_types.types import ERROR_METRICS

if TYPE_CHECKING:
    from rich.table import Table


class SearchSection(NamedTuple):
    """A search on a page and in a terminal: sentences on it, and the table of what was tried, the best first."""

    lines: list[str]
    title: str
    heads: Sequence[str]
    words: Sequence[int]
    """Columns that hold words, counted from 0; the others hold numbers."""
    rows: list[list[str]]
    """The last cell of each is its state."""

    def table(self) -> Table:
        """Return the table for rich; candidates are bold."""
        from rich import box
        from rich.table import Table

        table = Table(title=self.title, title_justify="left", box=box.SIMPLE_HEAD)
        for number, head in enumerate(self.heads):
            table.add_column(head, justify="left" if number in self.words else "right", no_wrap=number == 0)
        for row in self.rows:
            table.add_row(*row, style="bold" if row[-1] == "candidate" else None)
        return table


SHAPE_HEADS = ("shape", "layers", "width", "neurons", "pieces", "format", "ms", "MB", "GFLOPs", "by round", "state")


def by_round(scores: Sequence[Number | None], metric: str) -> str:
    """Return the scores of all rounds as values of their metric; scores of one of which less is better are stored as
    the negative."""
    sign = -1 if metric in ERROR_METRICS else 1
    return " → ".join("—" if score is None else f"{sign * score + 0.0:.3f}" for score in scores) or "—"


def shape_cells(shape: JudgedShape, metric: str) -> list[str]:
    """Return the row of a shape, whose scores are of a metric."""
    return [
        shape.name,
        str(shape.layers),
        str(shape.hidden),
        str(shape.feed_forward),
        f"{shape.vocabulary:,}",
        shape.format,
        f"{shape.ms:.3g}",
        megabytes(float(shape.bytes)),
        f"{float(shape.flops) / 1e9:.2f}",
        by_round(shape.scores, metric),
        shape.state,
    ]


def search_lines(result: SearchResult, ranking: str = "") -> list[str]:
    """Return sentences on a search: its budget, how many shapes fit, the latency table, and the ranking, which is to be
    as ``ranking`` says where it was not made."""
    rounds = ", then ".join(str(count) for count in result.rounds)
    ranking = ranking or ("ranked in a supernet" if result.trusted else f"trained in rounds of {rounds}")
    lines = [
        f"Budget: {', '.join(result.budgets)}. {plural(result.points, 'point')} in the space"
        + (f"; {plural(result.fitting, 'shape')} fit, {ranking}." if result.table else ".")
    ]
    if result.table is not None:
        lines.append(table_line(result.table))
    if result.losses:
        lines.append(losses_line(result.losses, result.scored_by))
    if result.scored is not None:
        lines.append(
            f"{plural(result.scored, 'shape')} of {result.fitting:,} were scored with the supernet's weights: those of "
            f"its check, and generations that NSGA-II chose; the others have no score."
        )
    if result.checked:
        lines.append(supernet_line(result))
    if result.tau is not None:
        before = "The supernet" if result.trusted else "The last round"
        lines.append(agreement_line(before, result.tau, sum(one.state == "candidate" for one in result.shapes)))
    if result.by_hand:
        lines.append(by_hand_line(result.by_hand))
    return [*lines, *(f"Note: {note}." for note in result.notes)]


def agreement_line(before: str, tau: float, candidates: int) -> str:
    """Return a sentence on how far what scored candidates ``before`` agrees with their whole trainings."""
    few = f"; of {candidates} it tells little" if candidates < FEW_CANDIDATES else ""
    return (
        f"{before} and the whole trainings of the {plural(candidates, 'candidate')} agree with tau {tau:.2f} (1: one "
        f"order{few})."
    )


def losses_line(losses: Mapping[str, Number], metric: str) -> str:
    """Return a sentence on what vocabularies and formats cost the teacher."""
    in_percent = metric in ERROR_METRICS
    parts = [
        f"{named_choice(name)} {f'{100 * loss:.1f} %' if in_percent else f'{loss:.3f}'}"
        for name, loss in losses.items()
    ]
    return (
        f"On the selection rows vocabularies and formats cost the teacher, in {metric}: {', '.join(parts)}. Each shape "
        f"has the largest vocabulary that fits in a format, and the format in which both cost least."
    )


def named_choice(name: str) -> str:
    """Return a vocabulary or a format in words."""
    words = {"whole": "all pieces", "used": "used pieces"}
    return f"{int(name):,} pieces" if name.isdecimal() else words.get(name, name)


def by_hand_line(shapes: Sequence[ShapeByHand]) -> str:
    """Return a sentence on how the chosen shapes stand to those that the recipe has by hand."""
    better = [f"{one.name} dominates {', '.join(one.dominates)}" for one in shapes if one.dominates]
    worse = [f"{one.name} is dominated by {', '.join(one.dominated_by)}" for one in shapes if one.dominated_by]
    parts = [*better, *worse] or ["none dominates a chosen shape, or is dominated by one"]
    unsteady = "; some of these latencies are unsteady" if any(one.unsteady for one in shapes) else ""
    return (
        f"Beside {plural(len(shapes), 'candidate')} by hand, by measured latency, bytes and score (points, not "
        f"intervals): {'; '.join(parts)}{unsteady}."
    )


def supernet_line(result: SearchResult) -> str:
    """Return a sentence on how far a supernet ranks shapes as trainings of their own do."""
    follows = "its ranking was followed" if result.trusted else "its ranking is not to be trusted, and was not followed"
    if result.supernet_tau is None:
        return (
            f"Supernet: all scores with its weights, or of {plural(len(result.checked), 'shape')} that were trained "
            f"alone, are equal, so they agree with no tau; {follows}."
        )
    ordered = result.supernet_ordered
    ties = "" if ordered is None or ordered == 1 else f" in the {ordered:.0%} of pairs that both order"
    return (
        f"Supernet: scores with its weights and of {plural(len(result.checked), 'shape')} that were trained alone, for "
        f"the steps of a first round, agree with tau {result.supernet_tau:.2f}{ties}; {follows}."
    )


def table_line(table: LatencyTable) -> str:
    """Return a sentence on the latency table and its error."""
    parts = f"Latency table: {plural(len(table.cells), 'part')}, {table.unsteady} of them unsteady"
    if table.error is None or table.largest_error is None:
        return f"{parts}; no other shape checked it."
    rank = "" if table.rank_correlation is None else f", rank correlation {table.rank_correlation:.3f}"
    return (
        f"{parts}; on {plural(len(table.checks), 'shape')} that are no part of it its error is "
        f"{100 * table.error:.1f} % on average and {100 * table.largest_error:.1f} % at most{rank}."
    )


def search_section(result: SearchResult) -> SearchSection:
    """Return the sentences and the table of a search over shapes."""
    rows = [shape_cells(shape, result.scored_by) for shape in result.shapes]
    return SearchSection(
        search_lines(result),
        f"shapes, the best first; costs are predicted{scored_in_words(result.scored_by)}",
        SHAPE_HEADS,
        (0, 5, 9, 10),
        rows,
    )


def scored_in_words(metric: str) -> str:
    """Return the end of a title that names the metric of the scores by round; empty where it is not known."""
    return f"; by round: {metric} on the selection rows" if metric else ""


class PlannedSupernet(NamedTuple):
    """The stages of a ranking in a supernet that was not made, each with its cost in words."""

    length: str
    """Steps or epochs of its training."""
    training: str
    scores: str
    checked: int
    """Shapes that are trained alone to check it."""
    alone: str
    candidates: int
    generations: int = 0
    """Generations of shapes that NSGA-II chooses; 0 where all that fit are scored."""


def planned_lines(result: SearchResult, lengths: Sequence[str], supernet: PlannedSupernet | None = None) -> list[str]:
    """Return sentences on a search that was not run: what fits, what is measured first, and the trainings of its
    rounds, which of a ``supernet`` are what follows where it is not trusted; ``lengths`` are their steps or epochs in
    words, the last of the whole training."""
    if result.table is None:
        minutes = math.ceil(float(result.table_seconds or 0) / 60)
        return [
            *search_lines(result),
            f"The latency table of this machine is not measured, or the teacher's pieces are not counted: these are "
            f"the first stages of a search; the table takes about {minutes} minutes. Then a dry run lists what fits.",
        ]
    rounds = ", then ".join(f"{count} for {length} each" for count, length in zip(result.rounds, lengths, strict=True))
    if result.losses is None:
        waiting = (
            "each shape is listed in the first format that fits, with the largest vocabulary: what both cost is known "
            "once the teacher is trained and scored with each"
        )
        result = result.replaced(notes=(*result.notes, waiting))
    if supernet is None:
        return [*search_lines(result), f"Trainings of shapes: {rounds}."]
    scored = f"the scores of the shapes that fit ({supernet.scores})"
    if supernet.generations:
        scored = (
            f"the scores of its check ({supernet.scores}), and of up to {supernet.generations} generations by NSGA-II, "
            f"planned as they come"
        )
    checked = f"{plural(supernet.checked, 'shape')} trained alone for {lengths[0]} each ({supernet.alone})"
    return [
        *search_lines(result, "to be ranked in a supernet"),
        f"Supernet: its training, {supernet.length} ({supernet.training}); {scored}; {checked}.",
        f"If both orders agree with tau {TRUSTED} or more, {plural(supernet.candidates, 'candidate')} begin with "
        f"their part of the supernet, for {lengths[-1]} each. If not, shapes are trained in rounds: {rounds}.",
    ]
