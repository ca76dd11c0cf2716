"""Texts that are ranked for a query: a row's second text holds one on each line, and each is read beside the query.

A label is the grade of each text, and a prediction its score, as numbers with spaces between them. A target of a text
is one number: the id of its row, and its grade.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.task_types.texts.templates import LINES
from tasks.task_types.units import Parts

GRADE_BITS = 4
"""Bits of a target that hold the grade of a text; the others are the id of its row."""
UNGRADED = 15
"""Stands for the grade of a text in a row without grades."""
HIGHEST_GRADE = 10


def texts_to_rank(pair: str) -> list[str]:
    """Return the texts in a row's second text."""
    return pair.split(LINES)


def read_candidates(text: str, pair: str) -> list[tuple[str, str]]:
    """Return the query beside each text."""
    return [(text, one) for one in texts_to_rank(pair)]


def grades_in(label: str | None) -> list[int]:
    """Return the grades of a stored label."""
    return [int(grade) for grade in label.split()] if label else []


def grade_targets(row: int, label: Any, count: int) -> list[int]:
    """Return the targets of a row's texts."""
    return [(row << GRADE_BITS) | grade for grade in (grades_in(label) or [UNGRADED] * count)]


def relevant_targets(targets_U: np.ndarray) -> np.ndarray:
    """Tell by text whether it is relevant, from the targets; one without a grade is not known to be."""
    grades_U = targets_U & ((1 << GRADE_BITS) - 1)
    return np.asarray((grades_U > 0) & (grades_U != UNGRADED))


CANDIDATES = Parts(pairs=read_candidates, targets=grade_targets, needed=relevant_targets)
