"""Metrics of many bootstrap resamples at once: rows are never copied, each resample is a weight for every distinct
answer.

Where rows come in groups, groups are drawn: what rows of one group have in common would else count as often as the
group has rows.

Drawing N rows with replacement is drawing how often each distinct column of (predictions of every model, truth) comes
up, which is multinomial. A classifier has few distinct columns, however many rows it answered, so this costs next to
nothing. Method: Efron 1979. Shape letters: N rows, U distinct columns, M models, R resamples, C classes, G groups of
equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tasks.scoring.quality.metrics import Metric

Weighted = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

CHUNK = 200  # resamples at a time: bounds memory at CHUNK x U
ROUNDING = 1e-9  # a spread below this share of the values is rounding, not spread


def resampled(
    metric: Metric,
    predictions_MN: np.ndarray,
    references_N: np.ndarray,
    resamples: int,
    seed: int,
    groups_N: np.ndarray | None = None,
) -> np.ndarray:
    """Return the metric [M, R] of every model on the same resampled rows, or groups of rows where ``groups_N`` says
    which belong together."""
    random, rows = np.random.default_rng(seed), len(references_N)
    columns, column_N, counts_U = np.unique(
        np.vstack([predictions_MN, references_N]), axis=1, return_inverse=True, return_counts=True
    )
    draw = (
        drawn_groups(random, groups_N, column_N.ravel()) if groups_N is not None and comes_in_groups(groups_N) else None
    )
    weighted = WEIGHTED.get(metric.__name__) or repeated(metric)
    parts = []
    for start in range(0, resamples, CHUNK):
        many = min(CHUNK, resamples - start)
        weights_RU = random.multinomial(rows, counts_U / rows, many).astype(float) if draw is None else draw(many)
        parts.append(np.stack([weighted(each_U, columns[-1], weights_RU) for each_U in columns[:-1]]))
    return np.concatenate(parts, axis=1)


def group_numbers(values: Sequence[int | None] | None) -> np.ndarray | None:
    """Return the groups of rows as they were written; None where nobody wrote them, or not of all rows."""
    return None if not values or None in values else np.asarray(values, dtype=np.int64)


def comes_in_groups(groups_N: np.ndarray) -> bool:
    """Tell whether there are groups to be drawn; of a single one nothing can be said but by its rows."""
    return 1 < len(np.unique(groups_N)) < len(groups_N)


def drawn_groups(
    random: np.random.Generator, groups_N: np.ndarray, column_N: np.ndarray
) -> Callable[[int], np.ndarray]:
    """Return a function that draws groups with replacement, and says how often each distinct column comes up [R, U]."""
    names, group_N = np.unique(groups_N, return_inverse=True)
    order_N = np.argsort(column_N, kind="stable")
    starts_U = np.flatnonzero(np.diff(column_N[order_N], prepend=-1))

    def draw(resamples: int) -> np.ndarray:
        times_RG = random.multinomial(len(names), np.full(len(names), 1 / len(names)), resamples).astype(float)
        return np.add.reduceat(times_RG[:, group_N[order_N]], starts_U, axis=1)

    return draw


def accuracy(predictions_U: np.ndarray, references_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return the accuracy of every resample."""
    return weights_RU @ (predictions_U == references_U) / weights_RU.sum(1)


def class_counts(predictions_U: np.ndarray, references_U: np.ndarray, weights_RU: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the classes [C], and how often each was rightly found, found, and true [R, C]."""
    classes = np.union1d(predictions_U, references_U)
    found_UC, true_UC = predictions_U[:, None] == classes, references_U[:, None] == classes
    return classes, weights_RU @ (found_UC & true_UC), weights_RU @ found_UC, weights_RU @ true_UC


def f1(predictions_U: np.ndarray, references_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return the F1 of every resample; whether it is binary is decided on all rows, so that no resample changes the
    definition."""
    classes, right_RC, found_RC, true_RC = class_counts(predictions_U, references_U, weights_RU)
    total_RC = found_RC + true_RC
    scores_RC = 2 * right_RC / np.maximum(total_RC, 1)
    if classes.max() <= 1:
        return scores_RC[:, classes == 1].sum(1)
    return scores_RC.sum(1) / (total_RC > 0).sum(1)


def matthews(predictions_U: np.ndarray, references_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return Matthews' correlation of every resample."""
    _, right_RC, found_RC, true_RC = class_counts(predictions_U, references_U, weights_RU)
    rows_R = weights_RU.sum(1)
    shared_R = rows_R * right_RC.sum(1) - (found_RC * true_RC).sum(1)
    spread_R = (rows_R**2 - (found_RC**2).sum(1)) * (rows_R**2 - (true_RC**2).sum(1))
    return np.where(spread_R > 0, shared_R / np.sqrt(np.maximum(spread_R, 1)), 0.0)


def pearson(predictions: np.ndarray, references: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation of every resample; values are [U], or [R, U] where they differ by resample."""
    (ours_RU, our_spread_R), (true_RU, true_spread_R) = (
        centred(values, weights_RU) for values in (predictions, references)
    )
    spread_R = our_spread_R * true_spread_R
    shared_R = (weights_RU * ours_RU * true_RU).sum(1)
    return np.where(spread_R > 0, shared_R / np.where(spread_R > 0, spread_R, 1), 0.0)


def centred(values: np.ndarray, weights_RU: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values about their mean [R, U], and the root of their summed squares [R]: exactly 0 where all are
    equal."""
    rows_R = weights_RU.sum(1)
    about_RU = values - ((weights_RU * values).sum(1) / rows_R)[:, None]
    spread_R = np.sqrt((weights_RU * about_RU**2).sum(1))
    return about_RU, np.where(spread_R > ROUNDING * np.abs(values).max() * np.sqrt(rows_R), spread_R, 0.0)


def spearman(predictions_U: np.ndarray, references_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation of every resample: rows are ranked anew within each, and ties share their mean
    rank."""
    return pearson(ranks(predictions_U, weights_RU), ranks(references_U, weights_RU), weights_RU)


def ranks(values_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return the rank of every value within every resample [R, U]."""
    order = np.argsort(values_U, kind="stable")
    starts = np.flatnonzero(np.diff(values_U[order], prepend=np.nan) != 0)
    counts_RG = np.add.reduceat(weights_RU[:, order], starts, axis=1)
    ranks_RG = counts_RG.cumsum(1) - (counts_RG - 1) / 2
    return ranks_RG[:, np.searchsorted(values_U[order][starts], values_U)]


def pearson_spearman(predictions_U: np.ndarray, references_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return the mean of both correlations of every resample."""
    return (pearson(predictions_U, references_U, weights_RU) + spearman(predictions_U, references_U, weights_RU)) / 2


def mse(predictions_U: np.ndarray, references_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
    """Return the mean squared error of every resample."""
    return weights_RU @ (predictions_U - references_U) ** 2 / weights_RU.sum(1)


def repeated(metric: Metric) -> Weighted:
    """Make any metric weighted, slowly, by repeating rows."""

    def weighted(predictions_U: np.ndarray, references_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
        counts_RU = weights_RU.astype(int)
        return np.asarray(
            [metric(predictions_U.repeat(counts_U), references_U.repeat(counts_U)) for counts_U in counts_RU]
        )

    return weighted


WEIGHTED: dict[str, Weighted] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "pearson_spearman": pearson_spearman,
    "mse": mse,
}
"""By the name of the metric's own function in ``metrics``."""
