"""Bootstrap intervals: of a figure, of a difference between two models on the same rows, and of the share that a student retains.

Method: Efron 1979, the bootstrap; rows are resampled, and where there are several seeds, seeds are resampled too. With only two or three
seeds the spread between seeds is underestimated (by the factor (S - 1) / S in variance): a score's interval is then a little too narrow. The
paired difference, on which the words "better" and "worse" stand, makes up for it.
Shape letters: N rows, S seeds, R resamples.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Difference:
    """How far two candidates are apart, and how likely so much would be if they were equal."""

    interval: Interval
    p: float


def paired_difference(
    metric: Metric, first_SN: np.ndarray, second_SN: np.ndarray, references_N: np.ndarray, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Return how far the first model's metric lies above the second's on the same rows, over the seeds of both."""
    return weighed_difference(metric, first_SN, second_SN, references_N, resamples=resamples, confidence=confidence, seed=seed).interval


def weighed_difference(
    metric: Metric, first_SN: np.ndarray, second_SN: np.ndarray, references_N: np.ndarray, *, resamples: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Difference:
    """Return a paired difference with its interval, and a two-sided p-value from the same resamples (never below 2 / (R + 1))."""
    values = resampled(metric, np.concatenate([first_SN, second_SN]), references_N, resamples, seed)
    first_R, second_R = over_few_seeds(values[: len(first_SN)], seed), over_few_seeds(values[len(first_SN) :], seed + 1)
    first, second = (float(np.mean([metric(each, references_N) for each in each_SN])) for each_SN in (first_SN, second_SN))
    gaps_R = first_R - second_R
    # Resamples that tie count on both sides: equal models are never told apart.
    rarer = min(np.count_nonzero(gaps_R <= 0), np.count_nonzero(gaps_R >= 0))
    return Difference(bounds(first - second, gaps_R, confidence), min(1.0, 2 * (rarer + 1) / (resamples + 1)))


def over_few_seeds(values_SR: np.ndarray, seed: int) -> np.ndarray:
    """Return means over resampled seeds [R], as far apart as means of S seeds truly are: of S seeds S - 1 are drawn.

    Drawing S would show the spread of a mean too small by the factor (S - 1) / S in variance, half of it with two seeds; drawing S - 1 makes
    up for exactly that (Rao and Wu 1988, resampling with complex survey data). One seed shows no spread at all.
    """
    seeds, resamples = values_SR.shape
    drawn_RS = np.random.default_rng([seed, 1]).integers(0, seeds, (resamples, max(1, seeds - 1)))
    means_R = values_SR[drawn_RS, np.arange(resamples)[:, None]].mean(-1)
    return np.asarray(means_R)
