"""Metrics of many bootstrap resamples at once: rows are never copied, each resample is a weight for every distinct
column of predictions and label.

If rows are grouped, groups are drawn; otherwise an effect common to a group would count once for each of its rows.

Drawing N rows with replacement amounts to drawing the counts of each distinct column of (predictions of every model,
label), which are multinomial. A classifier has few distinct columns, however many rows it predicted, so this is cheap.
Method: Efron 1979. Shape letters: N rows, U distinct columns, or units of rows that are judged together, M models, R
resamples, G groups.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tasks.metrics.definition import GroupMetric, Metric

CHUNK = 200  # resamples at a time: bounds memory at CHUNK x U


def resampled(
    metric: Metric,
    predictions_MN: np.ndarray,
    references_N: np.ndarray,
    resamples: int,
    seed: int,
    groups_N: np.ndarray | None = None,
    units_N: np.ndarray | None = None,
) -> np.ndarray:
    """Return the metric [M, R] of every model on the same resampled rows, or on resampled groups of rows if
    ``groups_N`` is given; ``units_N`` are groups of rows that are judged together, each within one of those."""
    if isinstance(metric, GroupMetric) and units_N is not None:
        return resampled_units(metric, predictions_MN, references_N, resamples, seed, groups_N, units_N)
    random, rows = np.random.default_rng(seed), len(references_N)
    columns, column_N, counts_U = np.unique(
        np.vstack([predictions_MN, references_N]), axis=1, return_inverse=True, return_counts=True
    )
    draw = (
        drawn_groups(random, groups_N, column_N.ravel()) if groups_N is not None and comes_in_groups(groups_N) else None
    )
    parts = []
    for start in range(0, resamples, CHUNK):
        many = min(CHUNK, resamples - start)
        weights_RU = random.multinomial(rows, counts_U / rows, many).astype(float) if draw is None else draw(many)
        parts.append(np.stack([metric.weighted(each_U, columns[-1], weights_RU) for each_U in columns[:-1]]))
    return np.concatenate(parts, axis=1)


def resampled_units(
    metric: GroupMetric,
    predictions_MN: np.ndarray,
    references_N: np.ndarray,
    resamples: int,
    seed: int,
    groups_N: np.ndarray | None,
    units_N: np.ndarray,
) -> np.ndarray:
    """Return a metric [M, R] of rows that are judged together, on resampled units, or on resampled groups of them."""
    first_U = np.unique(units_N, return_index=True)[1]
    outer_U = np.arange(len(first_U)) if groups_N is None else np.unique(groups_N[first_U], return_inverse=True)[1]
    drawn = outer_U.max() + 1
    random = np.random.default_rng(seed)
    weights_RU = random.multinomial(drawn, np.full(drawn, 1 / drawn), resamples).astype(float)[:, outer_U]
    found = [metric.parts_of(each_N, references_N, units_N) for each_N in predictions_MN]
    return np.stack([metric.of_sums(weights_RU @ parts_UK, weights_RU.sum(1)) for parts_UK in found])


def number_of_draws(
    metric: Metric, rows: int, groups_N: np.ndarray | None = None, units_N: np.ndarray | None = None
) -> int:
    """Return how many independent things a resample draws: rows, or groups of them."""
    if isinstance(metric, GroupMetric) and units_N is not None:
        return len(np.unique(units_N if groups_N is None else groups_N))
    return len(np.unique(groups_N)) if groups_N is not None and comes_in_groups(groups_N) else rows


def comes_in_groups(groups_N: np.ndarray) -> bool:
    """Return whether groups can be resampled: there are at least two, and not every row is its own group."""
    return 1 < len(np.unique(groups_N)) < len(groups_N)


def drawn_groups(
    random: np.random.Generator, groups_N: np.ndarray, column_N: np.ndarray
) -> Callable[[int], np.ndarray]:
    """Return a function that draws groups with replacement and returns the counts of each distinct column [R, U]."""
    names, group_N = np.unique(groups_N, return_inverse=True)
    order_N = np.argsort(column_N, kind="stable")
    starts_U = np.flatnonzero(np.diff(column_N[order_N], prepend=-1))

    def draw(resamples: int) -> np.ndarray:
        times_RG = random.multinomial(len(names), np.full(len(names), 1 / len(names)), resamples).astype(float)
        return np.add.reduceat(times_RG[:, group_N[order_N]], starts_U, axis=1)

    return draw
