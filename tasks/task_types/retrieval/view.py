"""Ranks in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tasks.task_types.embedding.view import EXAMPLE_ANSWER, VECTOR_CODE, example_texts
from tasks.task_types.interfaces import ErrorFigure, View


def rank_written(given: Any, names: Sequence[str]) -> str:
    """Return a rank."""
    return f"rank {given:.0f}" if isinstance(given, (int, float)) and math.isfinite(given) else "—"


MISSED = ErrorFigure("missed", "share of queries whose passage is not among ten", "missed")
VIEW = View(
    example=example_texts,
    example_answer=EXAMPLE_ANSWER,
    code=VECTOR_CODE,
    analysis_title="How often a passage is not found",
    figures=(MISSED, ErrorFigure("median_rank", "median rank of the passage", "rank")),
    card_figure=MISSED,
    chart="",
    chart_note="",
    matrix="",
    counted={
        "teacher_earlier": "queries and passages that the teacher ranks higher",
        "student_earlier": "queries and passages that the student ranks higher",
    },
    examples={
        "surest": "Queries whose passage fell most, each with its passage",
        "corrected": "Queries whose passage the student ranks higher, each with its passage",
    },
    answer=rank_written,
    judged="Each query is compared with all passages of the split; texts have at most {tokens} tokens. Of a query with "
    "several passages, each is ranked among those of other queries, and counts by itself: figures of benchmarks, which "
    "judge one list of each query, are others there.",
)
