"""The type of a model or a result that somebody else wrote: stated in its files, or guessed from them.

These are the only guesses. A recipe, and every stage, states its task type.
"""

from __future__ import annotations

from tasks.architectures import ModelConfig
from tasks.task_types.types import TASK_TYPES

LABELS = ("LABEL_0", "LABEL_1")
"""The labels of a config that states none."""
STATED = "limbeck_task_type"
"""Where a config or an export's card states a task type for which transformers has no ``problem_type``; the type's
``Head.configure`` and ``Graph.card`` write it."""
PROMPT = "prompt"
"""Where an export's card states what stands before every text of a user; texts of rows have it already."""


def type_of(config: ModelConfig) -> str:
    """Return the task type of a model from the values of its ``config.json``, which states it as ``problem_type``, or
    under our own name.

    A config that does not state it is guessed by its number of labels, as transformers does for its loss: one is a
    value, several are classes. Without labels there are two, as in transformers.
    """
    if config.get(STATED) in TASK_TYPES:
        return str(config.get(STATED))
    problem = config.get("problem_type")
    stated = [name for name, one in TASK_TYPES.items() if problem and one.problem_type == problem]
    labels = config.get("num_labels") or len(config.get("id2label") or LABELS)
    return stated[0] if stated else "regression" if labels == 1 else "classification"


def type_of_result(task_type: str, headline: str) -> str:
    """Return the task type of a run's result; results of older releases do not state it, and are guessed by the metric
    that decides."""
    having = [name for name, one in TASK_TYPES.items() if headline in one.metrics]
    return task_type or (having or list(TASK_TYPES))[0]
