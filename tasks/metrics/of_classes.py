"""Classification metrics, as sums over rows: accuracy, also of equally frequent classes, F1 and Matthews'
correlation.

Undefined cases have the value 0, so that no table breaks: F1 of a class that is neither predicted nor true, Matthews'
correlation if one side is constant. The set of classes is determined on all rows, so that it is the same in every
resample. Shape letters: N rows, C classes, K parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.metrics.definition import SumMetric


def columns(*parts_N: np.ndarray) -> np.ndarray:
    """Stack parts [N] or [K, N] side by side [N, K]; each column is contiguous, which is the fastest layout for
    sums."""
    return np.concatenate([np.atleast_2d(each) for each in parts_N]).T


def hits(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return whether each prediction is correct [N, 1]."""
    return columns(predictions_N == truth_N)


def share(sums_K: np.ndarray, rows: Any) -> np.ndarray:
    """Return the first sum as a mean over rows."""
    return np.asarray(sums_K[..., 0] / rows)


def f1_parts(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return for every class whether a row is a true positive, is predicted as the class, and truly belongs to it [N,
    3C].

    With two classes, only class 1 counts.
    """
    classes = np.union1d(predictions_N, truth_N)
    counted_C = classes if classes.max(initial=0) > 1 else np.asarray([1])
    found_CN, true_CN = predictions_N == counted_C[:, None], truth_N == counted_C[:, None]
    return columns(found_CN & true_CN, found_CN, true_CN)


def macro_f1_parts(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return the parts of ``f1_parts`` for every class that occurs, also where there are two [N, 3C]."""
    classes_C = np.union1d(predictions_N, truth_N)[:, None]
    found_CN, true_CN = predictions_N == classes_C, truth_N == classes_C
    return columns(found_CN & true_CN, found_CN, true_CN)


def recall_parts(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return for every class whether a row is a true positive, and whether it truly belongs to it [N, 2C]."""
    true_CN = truth_N == np.unique(truth_N)[:, None]
    return columns(true_CN & (predictions_N == truth_N), true_CN)


def mean_recall(counts_K: np.ndarray, rows: Any) -> np.ndarray:
    """Return the mean recall over the classes that truly occur."""
    right_C, true_C = np.split(counts_K, 2, axis=-1)
    return np.asarray((right_C / np.maximum(true_C, 1)).sum(-1) / np.maximum((true_C > 0).sum(-1), 1))


def f1_of_counts(counts_K: np.ndarray, rows: Any) -> np.ndarray:
    """Return the mean F1 over the classes that occur."""
    right_C, found_C, true_C = np.split(counts_K, 3, axis=-1)
    total_C = found_C + true_C
    scores_C = 2 * right_C / np.maximum(total_C, 1)
    return np.asarray(scores_C.sum(-1) / np.maximum((total_C > 0).sum(-1), 1))


def matthews_parts(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return whether each prediction is correct, and for every class whether it is predicted and whether it is true [N,
    1 + 2C]."""
    classes_C = np.union1d(predictions_N, truth_N)[:, None]
    return columns(predictions_N == truth_N, predictions_N == classes_C, truth_N == classes_C)


def matthews_of_counts(counts_K: np.ndarray, rows: Any) -> np.ndarray:
    """Return Matthews' correlation for any number of classes (Gorodkin 2004)."""
    found_C, true_C = np.split(counts_K[..., 1:], 2, axis=-1)
    shared = rows * counts_K[..., 0] - (found_C * true_C).sum(-1)
    spread = (rows**2 - (found_C**2).sum(-1)) * (rows**2 - (true_C**2).sum(-1))
    return np.where(spread > 0, shared / np.sqrt(np.maximum(spread, 1)), 0.0)


def macro_f1_and_hits(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return the parts of the mean F1 over classes, and whether each prediction is correct [N, 3C + 1]."""
    return columns(macro_f1_parts(predictions_N, truth_N).T, predictions_N == truth_N)


def mean_of_f1_and_share(sums_K: np.ndarray, rows: Any) -> np.ndarray:
    """Return the mean of the mean F1 over classes and of the share of correct predictions."""
    return (f1_of_counts(sums_K[..., :-1], rows) + sums_K[..., -1] / rows) / 2


ACCURACY = SumMetric("The share of correct predictions.", hits, share)
F1 = SumMetric("F1 of class 1 where there are two classes, else the mean F1 over classes.", f1_parts, f1_of_counts)
MACRO_F1 = SumMetric(
    "The mean F1 over classes, each of which counts the same, also where there are two.", macro_f1_parts, f1_of_counts
)
BALANCED_ACCURACY = SumMetric(
    "The mean recall over classes: the accuracy if all classes were equally frequent.", recall_parts, mean_recall
)
MATTHEWS = SumMetric("Matthews' correlation, for any number of classes.", matthews_parts, matthews_of_counts)
MACRO_F1_ACCURACY = SumMetric(
    "The mean of the mean F1 over classes and of accuracy, SuperGLUE's score of CB.",
    macro_f1_and_hits,
    mean_of_f1_and_share,
)
