"""Regression metrics: the mean squared error, and the correlations of Pearson and Spearman.

An undefined correlation (one side is constant) is 0. Shape letters: N rows, U distinct rows, R resamples, G groups of
equal values.
"""

from __future__ import annotations

import numpy as np

from tasks.metrics.definition import Correlation, SumMetric
from tasks.metrics.of_classes import columns, share

ROUNDING = 1e-9  # a spread below this share of the values is rounding, not spread


def squared_errors(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return squared errors [N, 1]."""
    return columns((predictions_N - truth_N) ** 2)


def pearson(predictions_N: np.ndarray, truth_N: np.ndarray) -> float:
    """Return Pearson's correlation."""
    if np.ptp(predictions_N) == 0 or np.ptp(truth_N) == 0:
        return 0.0
    return float(np.corrcoef(predictions_N, truth_N)[0, 1])


def weighted_pearson(predictions: np.ndarray, truth: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation [R] of every resample; values are [U], or [R, U] where they differ by resample."""
    (ours_RU, our_spread_R), (true_RU, true_spread_R) = (centred(values, weights_RU) for values in (predictions, truth))
    spread_R = our_spread_R * true_spread_R
    shared_R = (weights_RU * ours_RU * true_RU).sum(1)
    return np.where(spread_R > 0, shared_R / np.where(spread_R > 0, spread_R, 1), 0.0)


def centred(values: np.ndarray, weights_RU: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values about their mean [R, U], and the root of their summed squares [R], which is exactly 0 if all are
    equal."""
    rows_R = weights_RU.sum(1)
    about_RU = values - ((weights_RU * values).sum(1) / rows_R)[:, None]
    spread_R = np.sqrt((weights_RU * about_RU**2).sum(1))
    return about_RU, np.where(spread_R > ROUNDING * np.abs(values).max() * np.sqrt(rows_R), spread_R, 0.0)


def ranks(values_N: np.ndarray) -> np.ndarray:
    """Return ranks from 1; ties share their mean rank. If any value is NaN, all ranks are NaN."""
    if np.isnan(values_N).any():
        return np.full(len(values_N), np.nan)
    _, which_N, counts_G = np.unique(values_N, return_inverse=True, return_counts=True)
    return np.asarray(np.cumsum(counts_G) - (counts_G - 1) / 2)[which_N]


def weighted_ranks(values_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return the rank of every value within every resample [R, U]."""
    order = np.argsort(values_U, kind="stable")
    starts = np.flatnonzero(np.diff(values_U[order], prepend=np.nan) != 0)
    counts_RG = np.add.reduceat(weights_RU[:, order], starts, axis=1)
    ranks_RG = counts_RG.cumsum(1) - (counts_RG - 1) / 2
    return ranks_RG[:, np.searchsorted(values_U[order][starts], values_U)]


def spearman(predictions_N: np.ndarray, truth_N: np.ndarray) -> float:
    """Return Spearman's rank correlation."""
    return pearson(ranks(predictions_N), ranks(truth_N))


def weighted_spearman(predictions_U: np.ndarray, truth_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation [R] of every resample; rows are ranked anew within each."""
    ours_RU, true_RU = (weighted_ranks(values_U, weights_RU) for values_U in (predictions_U, truth_U))
    return weighted_pearson(ours_RU, true_RU, weights_RU)


def pearson_spearman(predictions_N: np.ndarray, truth_N: np.ndarray) -> float:
    """Return the mean of both correlations."""
    return (pearson(predictions_N, truth_N) + spearman(predictions_N, truth_N)) / 2


def weighted_pearson_spearman(predictions_U: np.ndarray, truth_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return the mean of both correlations [R] of every resample."""
    both = weighted_pearson(predictions_U, truth_U, weights_RU), weighted_spearman(predictions_U, truth_U, weights_RU)
    return (both[0] + both[1]) / 2


MSE = SumMetric("The mean squared error.", squared_errors, share, lower_is_better=True)
PEARSON = Correlation("Pearson's correlation.", pearson, weighted_pearson)
SPEARMAN = Correlation("Spearman's rank correlation; ties share their mean rank.", spearman, weighted_spearman)
PEARSON_SPEARMAN = Correlation(
    "The mean of both correlations, GLUE's score of STS-B.", pearson_spearman, weighted_pearson_spearman
)
