"""The metrics as plain functions of predictions [N] and references [N]; ``evaluate_metrics`` wraps them as
``evaluate.Metric`` classes.

Degenerate cases have a value, so that a table never breaks: where a correlation or an F1 is undefined (one side
constant, nothing found), it is 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Metric = Callable[[np.ndarray, np.ndarray], float]


def accuracy(predictions: np.ndarray, references: np.ndarray) -> float:
    """Return the share of equal entries."""
    return float(np.mean(predictions == references))


def f1(predictions: np.ndarray, references: np.ndarray) -> float:
    """Return F1 of class 1 where there are two classes, else the mean F1 over classes."""
    classes = np.union1d(predictions, references)
    wanted = classes if classes.max(initial=0) > 1 else [1]
    return float(np.mean([f1_of(predictions == label, references == label) for label in wanted]))


def f1_of(found: np.ndarray, true: np.ndarray) -> float:
    """Return F1 of one class from booleans."""
    total = found.sum() + true.sum()
    return float(2 * (found & true).sum() / total) if total else 0.0


def matthews(predictions: np.ndarray, references: np.ndarray) -> float:
    """Return Matthews' correlation, for any number of classes (Gorodkin 2004)."""
    classes = np.union1d(predictions, references)
    found, true = (
        np.stack([values == label for label in classes]).astype(float) for values in (predictions, references)
    )
    rows = len(predictions)
    shared = rows * (found * true).sum() - found.sum(1) @ true.sum(1)
    spread = (rows**2 - (found.sum(1) ** 2).sum()) * (rows**2 - (true.sum(1) ** 2).sum())
    return float(shared / np.sqrt(spread)) if spread > 0 else 0.0


def pearson(predictions: np.ndarray, references: np.ndarray) -> float:
    """Return Pearson's correlation."""
    if np.ptp(predictions) == 0 or np.ptp(references) == 0:
        return 0.0
    return float(np.corrcoef(predictions, references)[0, 1])


def spearman(predictions: np.ndarray, references: np.ndarray) -> float:
    """Return Spearman's rank correlation; ties share their mean rank."""
    from scipy.stats import rankdata

    return pearson(rankdata(predictions), rankdata(references))


def pearson_spearman(predictions: np.ndarray, references: np.ndarray) -> float:
    """Return the mean of both correlations, GLUE's score of STS-B."""
    return (pearson(predictions, references) + spearman(predictions, references)) / 2


def mse(predictions: np.ndarray, references: np.ndarray) -> float:
    """Return the mean squared error."""
    return float(np.mean((predictions - references) ** 2))


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "pearson_spearman": pearson_spearman,
    "mse": mse,
}

LOWER_IS_BETTER: frozenset[Metric] = frozenset({mse})
"""Errors, not scores: a share of the teacher's is no share of its quality, so none is given."""
