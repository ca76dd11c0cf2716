"""Losses over the units of a row, such as the texts of a query, written a second time in numpy, and their cases."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy import ndarray

from tests.methods.golden.case import Case, pair
from tests.methods.golden.losses import log_softmax

ABSENT_UNIT = -1e4


def rows_of(row_U: ndarray) -> Iterator[ndarray]:
    """The places of the units of each row, in the order of the rows."""
    for row in dict.fromkeys(row_U.tolist()):
        yield np.flatnonzero(row_U == row)


def by_row_of_units(scores_U1: ndarray, row_U: ndarray) -> ndarray:
    """Scores of each row in a line of its own, filled up to the longest."""
    rows = list(rows_of(row_U))
    found = np.full((len(rows), max(map(len, rows))), ABSENT_UNIT, dtype=scores_U1.dtype)
    for line, places in enumerate(rows):
        found[line, : len(places)] = scores_U1[places, 0]
    return found


def score_loss(student_U1: ndarray, teacher_U1: ndarray, row_U: ndarray, temperature: float) -> ndarray:
    """Mean squared difference of scores."""
    return np.mean((student_U1 - teacher_U1) ** 2)


def margin_loss(student_U1: ndarray, teacher_U1: ndarray, row_U: ndarray, temperature: float) -> ndarray:
    """MarginMSE over every pair of one row (Hofstätter et al. 2020)."""
    pairs = [(one, two) for places in rows_of(row_U) for one in places for two in places if one < two]
    apart = [
        (student_U1[one, 0] - student_U1[two, 0]) - (teacher_U1[one, 0] - teacher_U1[two, 0]) for one, two in pairs
    ]
    return np.sum(np.array(apart) ** 2) / max(1, len(pairs))


def list_loss(student_U1: ndarray, teacher_U1: ndarray, row_U: ndarray, temperature: float) -> ndarray:
    """T² times the divergence of each row's shares, averaged over rows."""
    rows = list(rows_of(row_U))
    total = 0.0
    for places in rows:
        ours, theirs = (log_softmax(each[places, 0] / temperature) for each in (student_U1, teacher_U1))
        total = total + temperature**2 * np.sum(np.exp(theirs) * (theirs - ours))
    return total / len(rows)


def relevance_loss(scores_U1: ndarray, grades_U: ndarray) -> ndarray:
    """Cross entropy of each score's Bernoulli distribution with whether the grade is above 0; unknown grades are left
    out."""
    known = np.flatnonzero(grades_U >= 0)
    scores, relevant = scores_U1[known, 0], grades_U[known] > 0
    return np.sum(np.log(1 + np.exp(np.where(relevant, -scores, scores)))) / max(1, len(known))


def list_prediction_loss(
    student_U1: ndarray,
    teacher_U1: ndarray,
    row_U: ndarray,
    grades_U: ndarray,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> ndarray:
    """The loss against the teacher beside that on relevance."""
    soft = {"default": margin_loss, "margins": margin_loss, "scores": score_loss, "lists": list_loss}[formula]
    against = soft(student_U1, teacher_U1, row_U, temperature)
    return (1 - hard_weight) * against + hard_weight * relevance_loss(student_U1, grades_U)


def lists() -> list[Case]:
    """Three rows of three, one and four units; a unit has no grade."""
    student, teacher = pair(91, 8, 1)
    both = {"student_U1": student, "teacher_U1": teacher, "row_U": np.array([4, 4, 4, 2, 7, 7, 7, 7])}
    grades, learned = np.array([0, 2, -1, 1, 0, 0, 3, 1]), ("student_U1",)
    made = [
        Case(
            "lists.by_row_of_units",
            "three rows",
            by_row_of_units,
            {"scores_U1": student, "row_U": both["row_U"]},
        ),
        Case(
            "lists.relevance_loss",
            "grades",
            relevance_loss,
            {"scores_U1": student, "grades_U": grades},
            {},
            ("scores_U1",),
        ),
    ]
    for formula in (score_loss, margin_loss, list_loss):
        made.append(Case(f"lists.{formula.__name__}", "T2", formula, both, {"temperature": 2.0}, learned))
    for formula in ("default", "margins", "scores", "lists"):
        knobs = {"temperature": 2.0, "hard_weight": 0.25, "formula": formula}
        inputs = {**both, "grades_U": grades}
        made.append(Case("lists.list_prediction_loss", formula, list_prediction_loss, inputs, knobs, learned))
    return made
