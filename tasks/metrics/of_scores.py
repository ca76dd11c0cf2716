"""A metric of scores: the area under the ROC curve, for two classes.

It is the share of the pairs of a row of class 1 and a row of class 0 in which the former has the higher score; a tie
counts half, so the sum of ranks gives it exactly (Hanley and McNeil 1982, Radiology 143). No threshold is chosen, and
the shares of the classes do not matter. Where one class does not occur, it is 0.5, the value of a random order. Shape
letters: N rows, U distinct rows, R resamples.
"""

from __future__ import annotations

import numpy as np

from tasks.metrics.definition import Correlation
from tasks.metrics.of_values import weighted_ranks

CHANCE = 0.5


def auroc(scores_N: np.ndarray, truth_N: np.ndarray) -> float:
    """Return the area under the ROC curve of scores, the higher the more likely class 1."""
    return float(weighted_auroc(scores_N, truth_N, np.ones((1, len(truth_N))))[0])


def weighted_auroc(scores_U: np.ndarray, truth_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return the area under the ROC curve [R] of every resample; rows are ranked anew within each."""
    positives_RU = weights_RU * (truth_U == 1)
    positives_R, rows_R = positives_RU.sum(1), weights_RU.sum(1)
    ranks_R = (positives_RU * weighted_ranks(scores_U, weights_RU)).sum(1)
    pairs_R = positives_R * (rows_R - positives_R)
    won_R = ranks_R - positives_R * (positives_R + 1) / 2
    return np.where(pairs_R > 0, won_R / np.maximum(pairs_R, 1), CHANCE)


AUROC = Correlation(
    "The area under the ROC curve, for two classes: the share of pairs of both classes that the scores put in order.",
    auroc,
    weighted_auroc,
)
