"""A metric, defined once: its value on a set of rows, and its values on many weighted resamples of the same rows.

Most metrics are a function of sums over rows (``SumMetric``). The sums of all rows give the value that is reported and
that selects checkpoints; sums weighted by how often each row was drawn give a bootstrap. Shape letters: N rows, U
distinct rows, K parts of a metric, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Metric(Protocol):
    """A figure computed from predictions and true values."""

    @property
    def description(self) -> str:
        """One sentence for users."""

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric is an error, so that the share of the teacher's quality is the teacher's value over
        ours."""

    def __call__(self, predictions_N: np.ndarray, truth_N: np.ndarray) -> float:
        """Return the metric of all rows."""

    def weighted(self, predictions_U: np.ndarray, truth_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
        """Return the metric [R] of every resample; a weight says how often a row was drawn."""


@dataclass(frozen=True)
class SumMetric:
    """A metric that is a function of sums over rows."""

    description: str
    parts: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Maps predictions [N] and truth [N] to K numbers per row [N, K]; K may depend on the classes that occur."""
    of_sums: Callable[[np.ndarray, Any], np.ndarray]
    """Maps sums of parts [..., K] and numbers of rows [...] to values [...]."""
    lower_is_better: bool = False

    def __call__(self, predictions_N: np.ndarray, truth_N: np.ndarray) -> float:
        """Return the metric of all rows."""
        sums_K = self.parts(predictions_N, truth_N).sum(0)
        # Counts become floats, as their products may be too large for integers; other sums keep their precision.
        exact_K = sums_K.astype(np.float64) if sums_K.dtype.kind in "bi" else sums_K
        return float(self.of_sums(exact_K, len(truth_N)))

    def weighted(self, predictions_U: np.ndarray, truth_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
        """Return the metric [R] of every resample."""
        return self.of_sums(weights_RU @ self.parts(predictions_U, truth_U), weights_RU.sum(1))


@dataclass(frozen=True)
class GroupMetric:
    """A metric of rows that are judged together, such as all answers to one question: a function of sums over groups.
    Where rows have no groups, each is a group of its own. Shape letters: G groups, K parts."""

    description: str
    parts: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    """Maps predictions [N], truth [N] and the number of each row's group [N], from 0 on, to parts [G, K]."""
    of_sums: Callable[[np.ndarray, Any], np.ndarray]
    """Maps sums of parts [..., K] and numbers of groups [...] to values [...]."""
    lower_is_better: bool = False

    def __call__(self, predictions_N: np.ndarray, truth_N: np.ndarray, groups_N: np.ndarray | None = None) -> float:
        """Return the metric of all rows."""
        parts_GK = self.parts_of(predictions_N, truth_N, groups_N)
        return float(self.of_sums(parts_GK.sum(0), len(parts_GK)))

    def parts_of(self, predictions_N: np.ndarray, truth_N: np.ndarray, groups_N: np.ndarray | None) -> np.ndarray:
        """Return the parts of every group, in the order of the groups' numbers."""
        each_N = np.arange(len(truth_N)) if groups_N is None else np.unique(groups_N, return_inverse=True)[1]
        return self.parts(predictions_N, truth_N, each_N).astype(np.float64)

    def weighted(self, predictions_U: np.ndarray, truth_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
        """Return the metric [R] of every resample, of rows without groups."""
        return self.of_sums(weights_RU @ self.parts_of(predictions_U, truth_U, None), weights_RU.sum(1))


def metric_value(metric: Metric, predictions_N: np.ndarray, truth_N: np.ndarray, groups_N: np.ndarray | None) -> float:
    """Return a metric of all rows; ``groups_N`` are those that are judged together, if there are any."""
    if isinstance(metric, GroupMetric):
        return metric(predictions_N, truth_N, groups_N)
    return metric(predictions_N, truth_N)


@dataclass(frozen=True)
class Correlation:
    """A metric that cannot be computed from sums: ranks depend on all rows, and sums of squares about zero lose digits
    that sums about the mean keep."""

    description: str
    value: Callable[[np.ndarray, np.ndarray], float]
    values: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    lower_is_better: bool = False

    def __call__(self, predictions_N: np.ndarray, truth_N: np.ndarray) -> float:
        """Return the metric of all rows."""
        return self.value(predictions_N, truth_N)

    def weighted(self, predictions_U: np.ndarray, truth_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
        """Return the metric [R] of every resample."""
        return self.values(predictions_U, truth_U, weights_RU)
