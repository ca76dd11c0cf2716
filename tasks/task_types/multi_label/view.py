"""Sets of labels in words: missed and wrong labels, and the labels of a row with their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.task_types.common_view import LOGITS_OF_CHECKPOINT, LOGITS_OF_EXPORT, example_arguments, example_text
from tasks.task_types.interfaces import Code, ErrorFigure, View


def labels_named(given: Any, names: Sequence[str]) -> str:
    """Return the labels of a set by their names, or by their numbers if they have none."""
    if not isinstance(given, int) or given < 0:
        return "—"
    found = [number for number in range(given.bit_length()) if given >> number & 1]
    return ", ".join(names[number] if number < len(names) else str(number) for number in found) or "no label"


WRONG = ErrorFigure("wrong_decisions", "wrong decisions on single labels (Hamming loss)", "wrong")
VIEW = View(
    example=example_text,
    example_answer={"label": "name", "score": 0.5},
    code=Code(
        text=example_arguments,
        checkpoint=LOGITS_OF_CHECKPOINT
        + "# the thresholds are in the bias of the head: a label applies where its output is above 0\n"
        + "print([model.config.id2label[i] for i, value in enumerate(logits[0]) if value > 0])",
        export=LOGITS_OF_EXPORT
        + "# the thresholds are in the bias of the head: a label applies where its output is above 0\n"
        + 'print([name for name, value in zip(card["labels"], logits) if value > 0])',
    ),
    analysis_title="Missed and wrong labels",
    figures=(
        WRONG,
        ErrorFigure("missed", "share of the true labels that are missed", "missed"),
        ErrorFigure("labels_more", "labels a row more than it has", "too many", signed=True),
    ),
    card_figure=WRONG,
    chart="reliability",
    chart_note="Decisions on single labels: the bars are the share of right ones at each distance from the threshold, "
    "written as a probability; the dark line is that probability.",
    matrix="confusion",
    counted={
        "both_right": "both sets exact",
        "only_teacher": "only the teacher's set exact",
        "only_student": "only the student's set exact",
        "both_wrong": "neither set exact",
        "differ": "different sets",
    },
    examples={
        "surest": "Sets that differ in a label of which both are sure",
        "corrected": "Student's set exact, teacher's not",
    },
    answer=labels_named,
)
