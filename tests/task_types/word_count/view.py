"""Word counts in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.task_types.common_view import LOGITS_OF_CHECKPOINT, LOGITS_OF_EXPORT, example_arguments, example_text
from tasks.task_types.interfaces import Code, ErrorFigure, View

EXACT = ErrorFigure("exact", "share of exact counts", "exact")


def answer(given: Any, names: Sequence[str]) -> str:
    """Return a count."""
    return f"{given:.0f} words"


VIEW = View(
    example=example_text,
    example_answer={"label": "LABEL_0", "score": 1.5},
    code=Code(
        text=example_arguments,
        checkpoint=LOGITS_OF_CHECKPOINT + "print(round(logits.exp().item()))",
        export=LOGITS_OF_EXPORT + "print(round(float(np.exp(logits[0]))))",
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
