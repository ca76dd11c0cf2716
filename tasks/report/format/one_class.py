"""Classifiers that give all rows one class: they tell nothing apart, and have a score and a share of the teacher
like others."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.report.format.numbers import plural
from tasks.results.error_analysis import ErrorAnalysis
from tasks.results.row import ResultRow


def one_class_lines(models: Sequence[ResultRow]) -> list[str]:
    """Return a sentence on the models that give all rows of their error analysis the same class; none if there is no
    such model."""
    found = {model.name: rows for model in models if (rows := rows_of_one_class(model))}
    if not found:
        return []
    them = "it tells" if len(found) == 1 else "they tell"
    return [
        f"All {plural(max(found.values()), 'row')} get one class from {', '.join(found)}: {them} nothing apart, a "
        f"score is the share of rows of that class, and a share of the teacher means nothing."
    ]


def rows_of_one_class(model: ResultRow) -> int:
    """Return the number of rows if a classifier gives all of them one class although they have several; else 0."""
    analysis = ErrorAnalysis.of(model.inspection)
    if analysis.figure("nll") is None:  # tags and sets of labels have matrices, too, of another meaning
        return 0
    counts_CC = analysis.matrix("confusion")
    classes_given = sum(any(column) for column in zip(*counts_CC, strict=True))
    classes_true = sum(any(row) for row in counts_CC)
    return sum(map(sum, counts_CC)) if classes_given == 1 and classes_true > 1 else 0
