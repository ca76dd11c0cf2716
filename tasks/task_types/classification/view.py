"""Classes in words: confusion, calibration, and labels with their probabilities."""

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


def class_named(given: Any, names: Sequence[str]) -> str:
    """Return a class by its name, or by its number if it has none."""
    return names[given] if isinstance(given, int) and 0 <= given < len(names) else two_digits(given)


ECE = ErrorFigure("ece", "expected calibration error", "ECE")
VIEW = View(
    example=example_text,
    example_answer={"label": "name", "score": 0.5},
    code=Code(
        text=example_arguments,
        checkpoint=LOGITS_OF_CHECKPOINT + "print(model.config.id2label[logits.argmax(-1).item()])",
        export=LOGITS_OF_EXPORT + 'print(card["labels"][logits.argmax()])',
    ),
    analysis_title="Confusions and calibration",
    figures=(
        ECE,
        ErrorFigure("nll", "negative log-likelihood", "NLL"),
        ErrorFigure("brier", "Brier score", "Brier"),
    ),
    card_figure=ECE,
    chart="reliability",
    chart_note="Reliability: the bars are the accuracy at each confidence, the dark line is the mean confidence; a "
    "calibrated model has both on the diagonal.",
    matrix="confusion",
    counted={
        "both_right": "both right",
        "only_teacher": "only the teacher right",
        "only_student": "only the student right",
        "both_wrong": "both wrong",
        "differ": "different predictions",
    },
    examples={
        "surest": "Both confident, with different predictions",
        "corrected": "Student right, teacher wrong",
    },
    answer=class_named,
)
