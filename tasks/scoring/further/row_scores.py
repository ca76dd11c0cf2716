"""The score of a row, by the name of its task type: for metrics that need more than a prediction, such as the area
under the ROC curve.

Only metrics that are reported beside those of a task read it (``scoring.metrics`` of a recipe). So it is no field of
``Answers``, whose fields count for every training. Shape letters: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tasks.errors import DataError
from tasks.task_types.common_answers import LOGITS


def score_of_second_class(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the logit of the second of two classes minus that of the first [N], of logits [N, 2]: it orders rows as
    the probability does. Raises DataError for another number of classes."""
    logits_NC = outputs[LOGITS].astype(np.float64)
    if logits_NC.shape[1] != 2:
        raise DataError(f"a row has a single score where there are two classes, and here are {logits_NC.shape[1]}")
    return np.asarray(logits_NC[:, 1] - logits_NC[:, 0])


ROW_SCORES: dict[str, Callable[[Mapping[str, np.ndarray]], np.ndarray]] = {"classification": score_of_second_class}
