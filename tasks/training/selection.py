"""Choosing checkpoints: one score of the held-back selection rows, higher is better.

The scales (``tasks/scoring``) judge finished models; this file only has to rank checkpoints of one training.
Shape letters: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tasks.training.batches import by_length
from tasks.training.precision import arithmetic
from tasks.training.rows import Encoded, Rows, Task, collate


def accuracy(predicted_N: np.ndarray, labels_N: np.ndarray) -> float:
    """Return the share of right answers."""
    return float((predicted_N == labels_N).mean())


def correlation(predicted_N: np.ndarray, labels_N: np.ndarray) -> float:
    """Return Pearson's correlation (over classes 0 and 1 it is Matthews'); 0 where either side is constant."""
    if np.ptp(predicted_N) == 0 or np.ptp(labels_N) == 0:
        return 0.0
    return float(np.corrcoef(predicted_N, labels_N)[0, 1])


def selection_score(task: Task, logits_NC: np.ndarray, labels_N: np.ndarray) -> float:
    """Score logits by the task: correlation for regression and Matthews' tasks, else accuracy."""
    if task.kind == "regression":
        return correlation(logits_NC[:, 0], labels_N)
    score = correlation if task.headline == "matthews" and task.outputs == 2 else accuracy
    return score(logits_NC.argmax(-1), labels_N)


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


def selector(model: Any, task: Task, rows: Rows, encoded: Encoded, pad: int, precision: str) -> Callable[[], float] | None:
    """Return a function that scores the model on the selection rows, or None where there are none."""
    if not len(rows):
        return None
    return lambda: selection_score(task, all_logits(model, encoded, pad, precision=precision), rows.labels_N)
