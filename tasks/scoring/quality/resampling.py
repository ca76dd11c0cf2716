"""Metrics of many bootstrap resamples at once: rows are never copied, each resample is a weight for every distinct
column of predictions and label.

If rows are grouped, groups are drawn; otherwise an effect common to a group would count once for each of its rows.

Drawing N rows with replacement amounts to drawing the counts of each distinct column of (predictions of every model,
label), which are multinomial. A classifier has few distinct columns, however many rows it predicted, so this is cheap.
Method: Efron 1979. Shape letters: N rows, U distinct columns, M models, R resamples, G groups.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tasks.metrics.definition import Metric

CHUNK = 200  # resamples at a time: bounds memory at CHUNK x U


def resampled(
    metric: Metric,
    predictions_MN: np.ndarray,
    references_N: np.ndarray,
    resamples: int,
    seed: int,
    groups_N: np.ndarray | None = None,
) -> np.ndarray:
    """Return the metric [M, R] of every model on the same resampled rows, or on resampled groups of rows if
    ``groups_N`` is given."""
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
