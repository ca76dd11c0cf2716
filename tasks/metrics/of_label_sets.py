"""Metrics of sets of labels, as sums over rows: F1 over all decisions and over labels, and the share of exact sets.

A set is one number, of which bit c says whether label c belongs to it. Undefined cases have the value 0, as for classes
(``of_classes``). Labels that are neither predicted nor true in any row do not count. Shape letters: N rows, C labels, K
parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.metrics.definition import SumMetric
from tasks.metrics.of_classes import columns, f1_of_counts, hits, share

MOST_LABELS = 52
"""Labels of a task: predictions are stored as floats of 64 bits, which hold whole numbers up to 53 bits."""


def as_sets(members_NC: np.ndarray) -> np.ndarray:
    """Return the number of each row's set [N], from whether each label belongs to it."""
    return np.asarray(members_NC.astype(np.int64) @ (1 << np.arange(members_NC.shape[1], dtype=np.int64)))


def members(sets_N: np.ndarray, labels_C: np.ndarray) -> np.ndarray:
    """Return whether each label, given by its number, belongs to each set [C, N]."""
    return (sets_N.astype(np.int64) >> labels_C[:, None]) & 1 == 1


def labels_in(*sets_N: np.ndarray) -> np.ndarray:
    """Return the numbers of the labels that belong to any of the sets [C]."""
    everything = np.bitwise_or.reduce([np.bitwise_or.reduce(each_N.astype(np.int64)) for each_N in sets_N])
    return np.flatnonzero((int(everything) >> np.arange(MOST_LABELS)) & 1)


def label_parts(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return for every label that occurs whether it is rightly predicted, is predicted, and is true [N, 3C]."""
    labels_C = labels_in(predictions_N, truth_N)
    found_CN, true_CN = members(predictions_N, labels_C), members(truth_N, labels_C)
    return columns(found_CN & true_CN, found_CN, true_CN)


def decision_parts(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return how many labels are rightly predicted, are predicted, and are true [N, 3]."""
    found_N, true_N = predictions_N.astype(np.int64), truth_N.astype(np.int64)
    return columns(*(np.bitwise_count(each_N).astype(np.int64) for each_N in (found_N & true_N, found_N, true_N)))


def f1_of_all_decisions(counts_K: np.ndarray, rows: Any) -> np.ndarray:
    """Return F1 of counts over all labels together."""
    right, found, true = (counts_K[..., part] for part in range(3))
    return np.asarray(2 * right / np.maximum(found + true, 1))


MICRO_F1 = SumMetric(
    "F1 over the decisions on all labels of all rows together, so that frequent labels count more.",
    decision_parts,
    f1_of_all_decisions,
)
LABEL_MACRO_F1 = SumMetric(
    "The mean F1 over labels, each of which counts the same, where a row may have several.", label_parts, f1_of_counts
)
SUBSET_ACCURACY = SumMetric("The share of rows whose set of labels is predicted exactly.", hits, share)
