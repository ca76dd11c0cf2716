"""Bootstrap intervals: of a figure, of a difference between two models on the same rows, and of the share that a student retains.

Method: Efron 1979, the bootstrap; rows are resampled, and where there are several seeds, seeds are resampled too. With only two or three
seeds the spread between seeds is underestimated (by the factor (S - 1) / S in variance): such intervals are a little too narrow.
Shape letters: N rows, S seeds, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tasks.scoring.metrics import LOWER_IS_BETTER, Metric
from tasks.scoring.resampling import resampled

LEAST = 0.05  # a share of a smaller score than this says nothing, so none is given


@dataclass(frozen=True)
class Interval:
    """A figure and the bounds it lies between with the stated confidence."""

    value: float
    low: float
    high: float

    def as_json(self) -> dict[str, float]:
        """Return plain numbers."""
        return {"value": self.value, "low": self.low, "high": self.high}


def over_seeds(values_SR: np.ndarray, seed: int) -> np.ndarray:
    """Return means over resampled seeds [R]."""
    seeds, resamples = values_SR.shape
    drawn_RS = np.random.default_rng([seed, 1]).integers(0, seeds, (resamples, seeds))
    return values_SR[drawn_RS, np.arange(resamples)[:, None]].mean(-1)


def bounds(value: float, values_R: np.ndarray, confidence: float) -> Interval:
    """Return the percentile interval."""
    low, high = np.quantile(values_R, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(value), float(low), float(high))


@dataclass(frozen=True)
class Comparison:
    """A candidate's score, its difference from the teacher on the same rows, and the share of the teacher's score that it retains."""

    score: Interval
    difference: Interval
    retained: Interval | None


def compare(
    metric: Metric, ours_SN: np.ndarray, theirs_N: np.ndarray, references_N: np.ndarray, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Comparison:
    """Score a candidate (one row of predictions a seed) beside its teacher, all on the same resampled rows."""
    everyone = np.concatenate([ours_SN, theirs_N[None]])
    values = resampled(metric, everyone, references_N, resamples, seed)
    ours_R, theirs_R = over_seeds(values[:-1], seed), values[-1]
    ours = float(np.mean([metric(each, references_N) for each in ours_SN]))
    theirs = metric(theirs_N, references_N)
    shares = metric not in LOWER_IS_BETTER and theirs > LEAST and theirs_R.min() > LEAST / 5
    retained = bounds(ours / theirs, ours_R / theirs_R, confidence) if shares else None
    return Comparison(bounds(ours, ours_R, confidence), bounds(ours - theirs, ours_R - theirs_R, confidence), retained)


def paired_difference(
    metric: Metric, first_SN: np.ndarray, second_SN: np.ndarray, references_N: np.ndarray, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Return how much better the first model is than the second on the same rows, over the seeds of both."""
    values = resampled(metric, np.concatenate([first_SN, second_SN]), references_N, resamples, seed)
    first_R, second_R = over_seeds(values[: len(first_SN)], seed), over_seeds(values[len(first_SN) :], seed + 1)
    mean: Callable[[np.ndarray], float] = lambda each_SN: float(np.mean([metric(each, references_N) for each in each_SN]))  # noqa: E731 - used twice here
    return bounds(mean(first_SN) - mean(second_SN), first_R - second_R, confidence)
