"""The classes of transformers that load the models of task types, by the names in ``TaskType.auto_class``.

They are those with a head for text; transformers is imported when one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasks.task_types.types import TASK_TYPES


def auto_class_of(task_type: str) -> Any:
    """Return the class that loads the models of a task type."""
    return AUTO_CLASSES[TASK_TYPES[task_type].auto_class]()


def sequence_classifier() -> Any:
    """Return the class of models with one vector for each text."""
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification


def token_classifier() -> Any:
    """Return the class of models with one vector for each token."""
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification


def multiple_choice() -> Any:
    """Return the class of models with one number for each of several texts."""
    from transformers import AutoModelForMultipleChoice

    return AutoModelForMultipleChoice


def question_answering() -> Any:
    """Return the class of models with a start and an end for each token."""
    from transformers import AutoModelForQuestionAnswering

    return AutoModelForQuestionAnswering


def encoder() -> Any:
    """Return the class of models without a head."""
    from transformers import AutoModel

    return AutoModel


AUTO_CLASSES: dict[str, Callable[[], Any]] = {
    "AutoModel": encoder,
    "AutoModelForMultipleChoice": multiple_choice,
    "AutoModelForQuestionAnswering": question_answering,
    "AutoModelForSequenceClassification": sequence_classifier,
    "AutoModelForTokenClassification": token_classifier,
}
