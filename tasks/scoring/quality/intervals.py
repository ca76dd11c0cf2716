"""Bootstrap intervals: of a figure, of a difference between two models on the same rows, and of the share of the
teacher's score that a student retains.

Method: Efron 1979, the bootstrap; rows are resampled, or groups of rows if the data is grouped (Davison and Hinkley
1997, section 3.8), and with several seeds, seeds are resampled too. With only two or three seeds the spread between
seeds is underestimated (by the factor (S - 1) / S in variance): a score's interval is then a little too narrow. The
paired difference, on which the words "better" and "worse" are based, takes the seeds' part from their variance instead
(see ``paired_difference``). Shape letters: N rows, S seeds, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.metrics.definition import Metric, metric_value
from tasks.scoring.quality.resampling import number_of_draws, resampled

LEAST = 0.05  # a share of a smaller score than this is meaningless, so none is computed
TAIL = 10  # minimum number of resamples beyond each end of an interval; with fewer, its ends would be single draws


@dataclass(frozen=True)
class Interval:
    """A figure and the bounds of its confidence interval."""

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


def enough(resamples: int, confidence: float) -> int:
    """Return the requested number of resamples, or more if at this confidence fewer than ``TAIL`` of them would lie
    beyond each end of the interval."""
    return max(resamples, int(np.ceil(2 * TAIL / (1 - confidence))))


def divides(theirs: float, theirs_R: np.ndarray) -> bool:
    """Return whether the other model's score and all of its resamples are far enough above zero to divide by them, as
    a bound of "at most 1.2 of the teacher's" does, of an error as well."""
    return bool(theirs > LEAST and theirs_R.min() > LEAST / 5)


def retained_share(
    metric: Metric, ours: float, ours_R: np.ndarray, theirs: float, theirs_R: np.ndarray, confidence: float
) -> Interval | None:
    """Return the share of the other model's quality: our score over its, or of an error, of which less is better, its
    over ours, so that twice its perplexity is 50 %. None where the share is meaningless: of a score near zero, and of
    errors of which one is 0, on all rows or on a resample (errors have no scale, so no other one is too small)."""
    if not metric.lower_is_better:
        return bounds(ours / theirs, ours_R / theirs_R, confidence) if divides(theirs, theirs_R) else None
    if all(value > 0 and values_R.min() > 0 for value, values_R in ((ours, ours_R), (theirs, theirs_R))):
        return bounds(theirs / ours, theirs_R / ours_R, confidence)
    return None


def why_no_share(metric: Metric, name: str, ours: float, theirs: float, by: str) -> str:
    """Return why a share of another model's figure is meaningless."""
    if by == "retained" and metric.lower_is_better:
        return (
            f"of an error it is the teacher's over ours, and one of {theirs:.3g} and {ours:.3g} {name} is 0, on all "
            f"rows or on some drawn ones; write a bound on {name} instead"
        )
    return f"a share of {theirs:.3g} {name} is not meaningful"


@dataclass(frozen=True)
class Comparison:
    """A candidate's score, its difference from the teacher on the same rows, and the share of the teacher's quality
    that it retains (``retained_share``)."""

    score: Interval
    difference: Interval
    retained: Interval | None


def compare(
    metric: Metric,
    ours_SN: np.ndarray,
    theirs_N: np.ndarray,
    references_N: np.ndarray,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    groups_N: np.ndarray | None = None,
    units_N: np.ndarray | None = None,
) -> Comparison:
    """Score a candidate (one row of predictions a seed) and its teacher, all on the same resampled rows or groups of
    rows."""
    everyone = np.concatenate([ours_SN, theirs_N[None]])
    values = resampled(metric, everyone, references_N, resamples, seed, groups_N, units_N)
    ours_R, theirs_R = over_seeds(values[:-1], seed), values[-1]
    ours_S = np.asarray([metric_value(metric, each, references_N, units_N) for each in ours_SN])
    theirs = metric_value(metric, theirs_N, references_N, units_N)
    ours = float(ours_S.mean())
    retained = retained_share(metric, ours, ours_R, theirs, theirs_R, confidence)
    # The difference decides how many layers can be dropped: as in ``paired_difference``, its interval takes account of
    # a small number of seeds.
    gaps_R = values[:-1].mean(0) - theirs_R
    drawn = number_of_draws(metric, len(references_N), groups_N, units_N)
    of_rows = float(gaps_R.var(ddof=1))
    difference = welch(ours - theirs, of_rows, [ours_S, np.asarray([theirs])], confidence, drawn)
    return Comparison(bounds(ours, ours_R, confidence), difference, retained)


@dataclass(frozen=True)
class Difference(Interval):
    """The difference between two candidates, with its two-sided p-value."""

    p: float


def paired_difference(
    metric: Metric,
    first_SN: np.ndarray,
    second_SN: np.ndarray,
    references_N: np.ndarray,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    groups_N: np.ndarray | None = None,
    units_N: np.ndarray | None = None,
) -> Difference:
    """Return the first model's metric minus the second's on the same rows, over the seeds of both.

    Rows: the variance of the difference over resamples, in which both models get the same rows. Seeds: the variance of
    the mean over seeds; because few seeds estimate it poorly, the interval uses Student's t with Welch's degrees of
    freedom. Percentiles of resampled seeds would exclude zero too often: if all noise is between seeds, for equal
    models with three seeds each one time in seven instead of one in twenty. The interaction of rows and seeds is
    counted in both parts, so the interval tends to be a little too wide.
    """
    values = resampled(metric, np.concatenate([first_SN, second_SN]), references_N, resamples, seed, groups_N, units_N)
    gaps_R = values[: len(first_SN)].mean(0) - values[len(first_SN) :].mean(0)
    scores = [
        np.asarray([metric_value(metric, each, references_N, units_N) for each in each_SN])
        for each_SN in (first_SN, second_SN)
    ]
    drawn = number_of_draws(metric, len(references_N), groups_N, units_N)
    return welch(float(scores[0].mean() - scores[1].mean()), float(gaps_R.var(ddof=1)), scores, confidence, drawn)


def welch(
    value: float, of_rows: float, scores: list[np.ndarray], confidence: float, drawn: int | None = None
) -> Difference:
    """Return the interval and the two-sided p-value of a difference (Welch 1947); ``of_rows`` is its variance over
    resamples that draw so many rows, or groups of rows (None: many). Of few groups the bootstrap underestimates the
    variance by the factor (G - 1) / G, and their spread has G - 1 degrees of freedom."""
    from scipy.special import stdtr, stdtrit  # Student's t; scipy.stats takes a second to import

    of_seeds = [each_S.var(ddof=1) / len(each_S) if len(each_S) > 1 else 0.0 for each_S in scores]
    of_rows *= 1.0 if drawn is None else drawn / max(1, drawn - 1)
    variance = of_rows + sum(of_seeds)
    if variance == 0:
        return Difference(value, value, value, float(value == 0))
    unsure = sum(each**2 / (len(each_S) - 1) for each, each_S in zip(of_seeds, scores, strict=True) if each > 0)
    unsure += 0.0 if drawn is None else of_rows**2 / max(1, drawn - 1)
    freedom = variance**2 / unsure if unsure > 0 else np.inf
    spread = float(np.sqrt(variance))
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * spread
    return Difference(value, value - half, value + half, float(2 * stdtr(freedom, -abs(value) / spread)))
