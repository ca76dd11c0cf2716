"""Values in words: residuals, and predictions against true values.

The pipeline of Hugging Face returns the value as ``score``, because the config of a checkpoint has ``problem_type:
regression``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.task_types.common_view import (
    LOGITS_OF_CHECKPOINT,
    LOGITS_OF_EXPORT,
    example_arguments,
    example_text,
    two_digits,
)
from tasks.task_types.interfaces import Code, ErrorFigure, View


def value_written(given: Any, names: Sequence[str]) -> str:
    """Return a value."""
    return two_digits(given)


MAE = ErrorFigure("mae", "mean absolute error", "MAE")
VIEW = View(
    example=example_text,
    example_answer={"label": "name", "score": 0.5},
    code=Code(
        text=example_arguments,
        checkpoint=LOGITS_OF_CHECKPOINT + "print(logits.item())",
        export=LOGITS_OF_EXPORT + "print(logits[0])",
    ),
    analysis_title="How far predictions are from the true values",
    figures=(
        ErrorFigure("bias", "mean error (predicted − true)", "bias", signed=True),
        MAE,
        ErrorFigure("rmse", "root mean squared error", "RMSE"),
    ),
    card_figure=MAE,
    chart="scatter",
    chart_note="Each point is a row: its true value, and the value that the model predicts; on the diagonal both are "
    "equal.",
    matrix="",
    counted={
        "teacher_nearer": "teacher closer to the true value",
        "student_nearer": "student closer to the true value",
    },
    examples={"surest": "Largest differences", "corrected": "Student closer to the true value"},
    answer=value_written,
)
