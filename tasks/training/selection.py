"""Checkpoint selection: one score on the held-back selection rows, higher is better.

The scoring stage evaluates finished models; this file ranks checkpoints of one training, by the same metrics
(``tasks/metrics``).
Shape letters: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from tasks.errors import RecipeError
from tasks.metrics.metrics import METRICS
from tasks.recipe.training import TaskTraining
from tasks.training.data.batches import by_length
from tasks.training.data.rows import Encoded, Rows, Task, collate
from tasks.training.precision import arithmetic


def selection_score(task: Task, logits_NC: np.ndarray, labels_N: np.ndarray, choose_by: str = "headline") -> float:
    """Return the score of logits by the task's headline metric, or by the metric ``choose_by``; higher is better.

    Raises RecipeError for an unknown metric.
    """
    metric = task.headline if choose_by == "headline" else choose_by
    if metric not in METRICS:
        raise RecipeError(f"unknown metric {metric!r}; choose one of {', '.join(sorted(METRICS))}")
    found = METRICS[metric](logits_NC[:, 0] if task.kind == "regression" else logits_NC.argmax(-1), labels_N)
    return -found if METRICS[metric].lower_is_better else found


def all_logits(model: Any, encoded: Encoded, pad: int, *, precision: str, batch: int = 64) -> np.ndarray:
    """Return logits [N, C] in float32 of every row, in row order."""
    place, parts, order = model.device, [], []
    was_training = model.training
    model.eval()
    for rows in by_length(encoded.lengths_N, size=batch, tokens=16_384):
        with torch.inference_mode(), arithmetic(precision, place):
            inputs = collate(encoded, rows, pad, place).inputs(model)
            parts.append(model(**inputs).logits.float().cpu().numpy())
        order.append(rows)
    model.train(was_training)
    logits_NC = np.concatenate(parts)
    result = np.empty_like(logits_NC)
    result[np.concatenate(order)] = logits_NC
    return result


def selector(
    model: Any, task: Task, rows: Rows, encoded: Encoded, pad: int, knobs: TaskTraining
) -> Callable[[], float] | None:
    """Return a function that scores the model on the selection rows, or None if there are none."""
    if not len(rows):
        return None
    answered = partial(all_logits, model, encoded, pad, precision=knobs.precision)
    return lambda: selection_score(task, answered(), rows.labels_N, knobs.choose_by)
