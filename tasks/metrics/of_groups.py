"""Metrics of groups of rows with classes, such as the answers to one question (MultiRC) or sentences that differ in one
pronoun (AX-g).

Definitions: Khashabi et al. 2018, MultiRC (NAACL): exact match, F1 of a question (F1m), and F1 over all answers (F1a),
which is the metric ``f1``; Wang et al. 2019, SuperGLUE, arXiv:1905.00537: the gender parity score. Shape letters: N
rows, G groups, K parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.metrics.definition import GroupMetric
from tasks.metrics.of_classes import f1_of_counts


def summed(values_N: np.ndarray, groups_N: np.ndarray) -> np.ndarray:
    """Return the sum of values over the rows of each group [G]."""
    return np.bincount(groups_N, weights=values_N.astype(np.float64))


def exact_parts(predictions_N: np.ndarray, truth_N: np.ndarray, groups_N: np.ndarray) -> np.ndarray:
    """Return 1 for each group without a wrong row [G, 1]."""
    return (summed(predictions_N != truth_N, groups_N) == 0)[:, None]


def counts_of_true(predictions_N: np.ndarray, truth_N: np.ndarray, groups_N: np.ndarray) -> np.ndarray:
    """Return for each group the rows of class 1 that are found, that are predicted and that there are [G, 3]."""
    found_N, true_N = predictions_N == 1, truth_N == 1
    return np.stack([summed(each_N, groups_N) for each_N in (found_N & true_N, found_N, true_N)], -1)


def f1_parts_of_groups(predictions_N: np.ndarray, truth_N: np.ndarray, groups_N: np.ndarray) -> np.ndarray:
    """Return the F1 of class 1 of each group; 0 where nothing is predicted and nothing true [G, 1]."""
    right_G, found_G, true_G = counts_of_true(predictions_N, truth_N, groups_N).T
    return (2 * right_G / np.maximum(found_G + true_G, 1))[:, None]


def both_parts(predictions_N: np.ndarray, truth_N: np.ndarray, groups_N: np.ndarray) -> np.ndarray:
    """Return the counts of F1 over all rows, and exactness [G, 4]."""
    counts_G3 = counts_of_true(predictions_N, truth_N, groups_N)
    return np.concatenate([counts_G3, exact_parts(predictions_N, truth_N, groups_N)], -1)


def parity_parts(predictions_N: np.ndarray, truth_N: np.ndarray, groups_N: np.ndarray) -> np.ndarray:
    """Return 1 for each group whose rows have one prediction, right or wrong [G, 1]."""
    first_G = np.unique(groups_N, return_index=True)[1]
    return (summed(predictions_N != predictions_N[first_G][groups_N], groups_N) == 0)[:, None]


def mean_over_groups(sums_K: np.ndarray, groups: Any) -> np.ndarray:
    """Return the first sum as a mean over groups."""
    return np.asarray(sums_K[..., 0] / groups)


def mean_of_both(sums_K: np.ndarray, groups: Any) -> np.ndarray:
    """Return the mean of F1 over all rows and of the share of exact groups."""
    return (f1_of_counts(sums_K[..., :3], groups) + sums_K[..., 3] / groups) / 2


GROUP_EXACT = GroupMetric("The share of groups of which every row is right.", exact_parts, mean_over_groups)
GROUP_F1 = GroupMetric("The mean over groups of the F1 of class 1.", f1_parts_of_groups, mean_over_groups)
F1_GROUP_EXACT = GroupMetric(
    "The mean of F1 of class 1 over all rows and of the share of exact groups, SuperGLUE's score of MultiRC.",
    both_parts,
    mean_of_both,
)
GROUP_PARITY = GroupMetric(
    "The share of groups whose rows have one prediction, SuperGLUE's gender parity of AX-g.",
    parity_parts,
    mean_over_groups,
)
