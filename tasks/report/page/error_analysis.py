"""The error analysis on the page: confusions, reliability, and texts on which student and teacher disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.report.format.numbers import count, figure, plural, signed
from tasks.report.page.charts import reliability_chart, scatter_chart
from tasks.report.page.sections import LONGEST_TEXT, MOST_CLASSES
from tasks.results.row import ResultRow
from tasks.results.run import RunResult


def analysis_sections(result: RunResult, models: Sequence[ResultRow]) -> list[dict[str, Any]]:
    """Return the error analyses of the displayed models."""
    return [analysis_of(result, model) for model in models if model.inspection]


def analysis_of(result: RunResult, model: ResultRow) -> dict[str, Any]:
    """Return one model's confusion and calibration, or its residuals."""
    analysis = model.inspection or {}
    if "confusion" in analysis:
        labels = label_names(result, len(analysis["confusion"]))
        small = len(labels) <= MOST_CLASSES
        figures = [
            ("expected calibration error", figure(analysis.get("ece"))),
            ("negative log-likelihood", figure(analysis.get("nll"))),
            ("Brier score", figure(analysis.get("brier"))),
        ]
        return {
            "name": model.name,
            "role": model.role,
            "figures": figures,
            "chart": reliability_chart(model.name, analysis),
            "confusion": confusion_rows(analysis["confusion"], labels) if small else None,
            "labels": labels,
            "mistakes": None if small else mistakes(analysis["confusion"], labels),
        }
    figures = [
        ("mean error (predicted − true)", signed(analysis.get("bias"))),
        ("mean absolute error", figure(analysis.get("mae"))),
        ("root mean squared error", figure(analysis.get("rmse"))),
    ]
    return {
        "name": model.name,
        "role": model.role,
        "figures": figures,
        "chart": scatter_chart(model.name, analysis),
        "confusion": None,
        "mistakes": None,
        "labels": [],
    }


def label_names(result: RunResult, classes: int) -> list[str]:
    """Return the names of the classes, or their numbers if they have no names."""
    named = [str(name) for name in result.labels or ()]
    return named if len(named) == classes else [str(number) for number in range(classes)]


def confusion_rows(counts: Sequence[Sequence[int]], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each true class."""
    return [
        {"label": label, "cells": confusion_cells(row, place)}
        for place, (label, row) in enumerate(zip(labels, counts, strict=True))
    ]


def confusion_cells(row: Sequence[int], place: int) -> list[dict[str, Any]]:
    """Return the cells of one true class; the shade of a cell is its share of the row."""
    shares = [cell / (sum(row) or 1) for cell in row]
    return [
        {"count": count(cell), "share": round(share, 3), "right": column == place, "said": f"{share:.0%}"}
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


def disagreement_section(result: RunResult, model: ResultRow, texts: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the disagreements of a student and its teacher, with examples; without ``texts`` the examples only have
    row ids."""
    analysis = model.inspection or {}
    apart = analysis.get("apart")
    if not apart:
        return None
    classes = "differ" in apart["counts"]
    labels = label_names(result, len(analysis.get("confusion", ())))
    heads = APART_CLASSES if classes else APART_VALUES
    known = [(words, apart["examples"][name]) for name, words in heads.items() if apart["examples"].get(name)]
    lists = [{"title": words, "rows": [example(one, labels, texts) for one in found]} for words, found in known]
    return {"lines": apart_lines(apart["counts"]), "lists": lists, "with_texts": texts is not None}


WHO = ("student", "teacher")


APART_CLASSES = {
    "surest": "Both confident, with different predictions",
    "corrected": "Student right, teacher wrong",
}


APART_VALUES = {"surest": "Largest differences", "corrected": "Student closer to the true value"}


COUNTED = {
    "both_right": "both right",
    "only_teacher": "only the teacher right",
    "only_student": "only the student right",
    "both_wrong": "both wrong",
    "differ": "different predictions",
    "teacher_nearer": "teacher closer to the true value",
    "student_nearer": "student closer to the true value",
}


def apart_lines(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the number and share of rows for each case: both right, only the teacher right, and so on."""
    return [
        (words, f"{counts[name]:,} ({counts[name] / (counts['rows'] or 1):.1%})")
        for name, words in COUNTED.items()
        if name in counts
    ]


def example(one: Mapping[str, Any], labels: Sequence[str], texts: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return one row on which they disagree, as text."""
    found = (texts or {}).get(str(one["id"])) or ()
    return {
        "id": one["id"],
        "texts": [shorten(str(text)) for text in found if text],
        "label": answered(one["label"], labels),
        **{
            who: {"answer": answered(one[who]["answer"], labels), "probability": one[who].get("probability")}
            for who in WHO
        },
    }


def answered(answer: Any, labels: Sequence[str]) -> str:
    """Return a class by name, or a value."""
    return labels[answer] if labels and isinstance(answer, int) and 0 <= answer < len(labels) else figure(answer, ".2f")


def shorten(text: str) -> str:
    """Shorten a text that would fill the page."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT].rstrip() + " …"
