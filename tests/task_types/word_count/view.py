"""Word counts in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.task_types.common_view import code_of_logits, example
from tasks.task_types.interfaces import ErrorFigure, View

EXACT = ErrorFigure("exact", "share of exact counts", "exact")


def answer(given: Any, names: Sequence[str]) -> str:
    """Return a count."""
    return f"{given:.0f} words"


VIEW = View(
    example=example,
    example_answer={"label": "LABEL_0", "score": 1.5},
    code=code_of_logits(
        checkpoint="print(round(logits.exp().item()))", export="print(round(float(np.exp(logits[0]))))"
    ),
    analysis_title="How often counts are exact",
    figures=(EXACT,),
    card_figure=EXACT,
    chart="",
    chart_note="",
    matrix="",
    counted={"differ": "student and teacher count differently"},
    examples={"furthest": "Furthest apart"},
    answer=answer,
)
