"""The error analysis on the page: confusions, reliability, and texts on which student and teacher disagree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tasks.report.format.numbers import count, figure, plural, signed
from tasks.report.page.charts import reliability_chart, scatter_chart
from tasks.report.page.parts import (
    AnalysisPart,
    ConfusionCell,
    ConfusionRow,
    DisagreementPart,
    ExampleList,
    ShownAnswer,
    ShownExample,
)
from tasks.report.page.sections import LONGEST_TEXT, MOST_CLASSES, view_of
from tasks.results.error_analysis import ErrorAnalysis, ExampleAnswer, ExampleRow
from tasks.results.row import ResultRow
from tasks.results.run import RunResult
from tasks.task_types.interfaces import View

ShownTexts = Mapping[str, Sequence[str | None]]
"""The texts of displayed rows, by the row's id."""
CHARTS: dict[str, Callable[[str, ErrorAnalysis], Markup]] = {
    "reliability": reliability_chart,
    "scatter": scatter_chart,
}
"""Charts of one model's error analysis, by the name in a task type's view."""


def analysis_sections(result: RunResult, models: Sequence[ResultRow]) -> list[AnalysisPart]:
    """Return the error analyses of the displayed models."""
    return [analysis_of(result, model) for model in models if model.inspection]


def analysis_of(result: RunResult, model: ResultRow) -> AnalysisPart:
    """Return one model's figures and chart, and its counts by true class and prediction as a table, or, of many
    classes, the most frequent confusions."""
    view, found = view_of(result), ErrorAnalysis.of(model.inspection)
    counts = found.matrix(view.matrix)
    labels = label_names(result, len(counts))
    small = len(labels) <= MOST_CLASSES
    return AnalysisPart(
        name=model.name,
        role=model.role,
        figures=[
            *((one.title, (signed if one.signed else figure)(found.figure(one.name))) for one in view.figures),
            *figures_by_class(view, found, labels),
        ],
        chart=CHARTS[view.chart](model.name, found) if view.chart else None,
        labels=labels,
        confusion=confusion_rows(counts, labels) if counts and small else None,
        mistakes=mistakes(counts, labels) if counts and not small else None,
    )


def figures_by_class(view: View, found: ErrorAnalysis, labels: Sequence[str]) -> list[tuple[str, str]]:
    """Return the figures of each class, by title."""
    values = {one.title: found.figure(one.name) for one in view.by_class}
    return [
        (f"{title} of {label}", figure(value))
        for title, listed in values.items()
        for label, value in zip(labels, listed if isinstance(listed, (list, tuple)) else (), strict=False)
    ]


def label_names(result: RunResult, classes: int) -> list[str]:
    """Return the names of the classes, or their numbers if they have no names."""
    named = list(view_of(result).matrix_names([str(name) for name in result.labels or ()]))
    return named if len(named) == classes else [str(number) for number in range(classes)]


def confusion_rows(counts: Sequence[Sequence[int]], labels: Sequence[str]) -> list[ConfusionRow]:
    """Return a row for each true class."""
    return [
        ConfusionRow(label, confusion_cells(row, place))
        for place, (label, row) in enumerate(zip(labels, counts, strict=True))
    ]


def confusion_cells(row: Sequence[int], place: int) -> list[ConfusionCell]:
    """Return the cells of one true class; the shade of a cell is its share of the row."""
    shares = [cell / (sum(row) or 1) for cell in row]
    return [
        ConfusionCell(count(cell), round(share, 3), column == place, f"{share:.0%}")
        for column, (cell, share) in enumerate(zip(row, shares, strict=True))
    ]


def mistakes(counts: Sequence[Sequence[int]], labels: Sequence[str]) -> list[str]:
    """Return the most frequent confusions of many classes in words."""
    found = [
        (cell, -row, -column)
        for row, cells in enumerate(counts)
        for column, cell in enumerate(cells)
        if row != column and cell
    ]
    return [
        f"{labels[-row]} predicted as {labels[-column]}: {plural(cell, 'row')}"
        for cell, row, column in sorted(found, reverse=True)[:MOST_CLASSES]
    ]


def disagreement_section(result: RunResult, model: ResultRow, texts: ShownTexts | None) -> DisagreementPart | None:
    """Return the disagreements of a student and its teacher, with examples; without ``texts`` the examples only have
    row ids."""
    view, found = view_of(result), ErrorAnalysis.of(model.inspection)
    apart = found.apart
    if apart is None:
        return None
    labels = label_names(result, len(found.matrix(view.matrix)))
    known = [(title, apart.examples[name]) for name, title in view.examples.items() if apart.examples.get(name)]
    lists = [ExampleList(title, [example(one, view, labels, texts) for one in rows]) for title, rows in known]
    return DisagreementPart(apart_lines(apart.counts, view), lists, texts is not None)


def apart_lines(counts: Mapping[str, int], view: View) -> list[tuple[str, str]]:
    """Return the number and share of rows for each case: both right, only the teacher right, and so on."""
    return [
        (words, f"{counts[name]:,} ({counts[name] / (counts['rows'] or 1):.1%})")
        for name, words in view.counted.items()
        if name in counts
    ]


def example(one: ExampleRow, view: View, labels: Sequence[str], texts: ShownTexts | None) -> ShownExample:
    """Return one row on which they disagree, as text."""

    found = (texts or {}).get(str(one.id)) or ()

    def write(given: Any) -> str:
        return view.answer(given, labels) if view.in_text is None or not found else view.in_text(given, labels, found)

    def write_answer(given: ExampleAnswer) -> ShownAnswer:
        return ShownAnswer(write(given.answer), given.probability)

    return ShownExample(
        id=one.id,
        texts=[shorten(text) for text in found if text],
        label=write(one.label),
        student=write_answer(one.student),
        teacher=write_answer(one.teacher),
    )


def shorten(text: str) -> str:
    """Shorten a text that would fill the page."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT].rstrip() + " …"
