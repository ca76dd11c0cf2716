"""Choosing checkpoints: one score of the held-back selection rows, higher is better.

The scales (``tasks/scoring``) judge finished models; this file ranks checkpoints of one training, by the same metric.
Shape letters: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from tasks.errors import RecipeError
from tasks.recipe.training import TaskTraining
from tasks.training.data.batches import by_length
from tasks.training.data.rows import Encoded, Rows, Task, collate
from tasks.training.precision import arithmetic


def accuracy(predicted_N: np.ndarray, labels_N: np.ndarray) -> float:
    """Return the share of right answers."""
    return float((predicted_N == labels_N).mean())


def f1(predicted_N: np.ndarray, labels_N: np.ndarray) -> float:
    """Return F1 of class 1 where there are two classes, else the mean F1 over classes; 0 for one that is nowhere."""
    classes = np.union1d(predicted_N, labels_N)
    wanted = classes if classes.max(initial=0) > 1 else np.array([1])
    both = [((predicted_N == label) & (labels_N == label)).sum() for label in wanted]
    all_ = [(predicted_N == label).sum() + (labels_N == label).sum() for label in wanted]
    return float(np.mean([2 * right / total if total else 0.0 for right, total in zip(both, all_, strict=True)]))


def matthews(predicted_N: np.ndarray, labels_N: np.ndarray) -> float:
    """Return Matthews' correlation of any number of classes; 0 where either side is constant."""
    classes = np.union1d(predicted_N, labels_N)
    ours_NC, theirs_NC = (np.equal.outer(values, classes).astype(float) for values in (predicted_N, labels_N))
    ours_NC, theirs_NC = ours_NC - ours_NC.mean(0), theirs_NC - theirs_NC.mean(0)
    spread = (ours_NC**2).sum() * (theirs_NC**2).sum()
    return float((ours_NC * theirs_NC).sum() / np.sqrt(spread)) if spread else 0.0


def pearson(predicted_N: np.ndarray, labels_N: np.ndarray) -> float:
    """Return Pearson's correlation; 0 where either side is constant."""
    if np.ptp(predicted_N) == 0 or np.ptp(labels_N) == 0:
        return 0.0
    return float(np.corrcoef(predicted_N, labels_N)[0, 1])


def ranks(values_N: np.ndarray) -> np.ndarray:
    """Return ranks from 1; ties share their mean rank."""
    _, which_N, counts = np.unique(values_N, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray(last - (counts - 1) / 2)[which_N]


def spearman(predicted_N: np.ndarray, labels_N: np.ndarray) -> float:
    """Return Spearman's rank correlation."""
    return pearson(ranks(predicted_N), ranks(labels_N))


def pearson_spearman(predicted_N: np.ndarray, labels_N: np.ndarray) -> float:
    """Return the mean of both correlations."""
    return (pearson(predicted_N, labels_N) + spearman(predicted_N, labels_N)) / 2


def negative_mse(predicted_N: np.ndarray, labels_N: np.ndarray) -> float:
    """Return the mean squared error with its sign turned: less of it is better."""
    return -float(np.mean((predicted_N - labels_N) ** 2))


RANKINGS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "pearson_spearman": pearson_spearman,
    "mse": negative_mse,
}
"""By the names that the scales have for them; the numbers are theirs (a test compares them), turned so that more is
better."""


def selection_score(task: Task, logits_NC: np.ndarray, labels_N: np.ndarray, choose_by: str = "headline") -> float:
    """Score logits by the task's headline metric, or by the one that is named; more is better.

    Raises RecipeError where the task's headline is no metric that is known here.
    """
    metric = task.headline if choose_by == "headline" else choose_by
    if metric not in RANKINGS:
        raise RecipeError(f"unknown metric {metric!r}; choose one of {', '.join(sorted(RANKINGS))}")
    return RANKINGS[metric](logits_NC[:, 0] if task.kind == "regression" else logits_NC.argmax(-1), labels_N)


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
    """Return a function that scores the model on the selection rows, or None where there are none."""
    if not len(rows):
        return None
    answered = partial(all_logits, model, encoded, pad, precision=knobs.precision)
    return lambda: selection_score(task, answered(), rows.labels_N, knobs.choose_by)
