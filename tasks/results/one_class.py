"""Classifiers that give all rows one class, told by the error analysis of a run's result: such a model tells nothing
apart, and has a score and a share of the teacher like others."""

from __future__ import annotations

from tasks.results.error_analysis import ErrorAnalysis
from tasks.results.row import ResultRow


def rows_of_one_class(model: ResultRow) -> int:
    """Return the number of rows if a classifier gives all of them one class although they have several; else 0."""
    analysis = ErrorAnalysis.of(model.inspection)
    if analysis.figure("nll") is None:  # tags and sets of labels have matrices, too, of another meaning
        return 0
    counts_CC = analysis.matrix("confusion")
    classes_given = sum(any(column) for column in zip(*counts_CC, strict=True))
    classes_true = sum(any(row) for row in counts_CC)
    return sum(map(sum, counts_CC)) if classes_given == 1 and classes_true > 1 else 0
