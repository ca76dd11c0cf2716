"""The resampled values of a metric, for every model of a run: the only writer and the only reader of their file.

The gate reads the intervals of its criteria from them, at any confidence, and so calls no metric of an owner's own:
that runs in an engine alone. Shape letters: M models, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.recipe.judging import Criterion
from tasks.scoring.quality.gain import Gain
from tasks.scoring.quality.intervals import LEAST, Interval, bounds, enough, welch

FILE = "resamples.parquet"


@dataclass(frozen=True)
class Resampled:
    """The values of one model on one split: on all rows, and on every resample."""

    split: str
    model: int
    """Its position among the models of the run; 0 is the teacher."""
    value: float
    values_R: np.ndarray


def write_resamples(folder: Path, found: Sequence[Resampled]) -> None:
    """Write the values of all models on all splits."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "split": pa.array([one.split for one in found], pa.string()),
        "model": pa.array([one.model for one in found], pa.int64()),
        "value": pa.array([one.value for one in found], pa.float64()),
        "values": pa.array([one.values_R.tolist() for one in found], pa.list_(pa.float64())),
    }
    pq.write_table(pa.table(columns), folder / FILE, compression="zstd")


def read_resamples(folder: Path) -> list[Resampled]:
    """Return the values of all models on all splits."""
    import pyarrow.parquet as pq

    rows = pq.ParquetFile(folder / FILE).read().to_pylist()
    return [Resampled(row["split"], row["model"], row["value"], np.asarray(row["values"])) for row in rows]


def bounds_at(value: float, values_R: np.ndarray, confidence: float) -> Interval:
    """Return the interval of a figure from its resampled values: their percentiles; or, where too few of them lie
    beyond its ends, that of a normal distribution with their standard deviation, for which a hundred suffice (Efron
    and Tibshirani 1993, An Introduction to the Bootstrap, chapters 6 and 13)."""
    if len(values_R) >= enough(0, confidence):
        return bounds(value, values_R, confidence)
    from scipy.special import ndtri  # quantiles of the normal distribution; scipy.stats takes a second to import

    half = float(ndtri((1 + confidence) / 2)) * float(values_R.std(ddof=1))
    return Interval(value, value - half, value + half)


def criterion_interval(
    criterion: Criterion, ours: Resampled, theirs: Resampled, confidence: float, *, lower_is_better: bool
) -> Gain | None:
    """Return the interval that a criterion reads, against the teacher where it is relative; None where a share of the
    teacher's value is meaningless."""
    if criterion.test is not None:
        gaps_R, gap = ours.values_R - theirs.values_R, ours.value - theirs.value
        one = [np.asarray([ours.value]), np.asarray([theirs.value])]
        found = welch(gap, float(gaps_R.var(ddof=1)), one, confidence)
        return Gain(-gap, -found.high, -found.low) if lower_is_better else Gain(gap, found.low, found.high)
    values_R = ours.values_R
    if criterion.reference is not None and criterion.by == "difference":
        values_R = ours.values_R - theirs.values_R + theirs.value
    elif criterion.reference is not None:
        if lower_is_better or theirs.value <= LEAST or theirs.values_R.min() <= LEAST / 5:
            return None
        values_R = ours.values_R / theirs.values_R * theirs.value
    own = bounds_at(ours.value, values_R, confidence)
    return Gain(own.value, own.low, own.high)


@dataclass
class FurtherMetric:
    """A metric beside those of the task, as the gate reads it."""

    folder: Callable[[], Path]
    """Returns the folder of its resampled values, which is fetched only when a criterion needs it."""
    models: Mapping[str, int]
    """The position of each model, by name."""
    lower_is_better: bool
    read: Sequence[Resampled] = ()

    def interval(self, criterion: Criterion, name: str, split: str, confidence: float) -> Gain | None:
        """Return the interval that a criterion reads for a model, or None if its values are not known."""
        self.read = self.read or read_resamples(self.folder())
        known = {one.model: one for one in self.read if one.split == split}
        ours, teacher = known.get(self.models.get(name, -1)), known.get(0)
        if ours is None or teacher is None:
            return None
        return criterion_interval(criterion, ours, teacher, confidence, lower_is_better=self.lower_is_better)
