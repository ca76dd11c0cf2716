"""A model's predictions on the rows of the gate's split: the evaluation that is stored with a registered version.

The model is that of one seed; versions registered by releases that judged means over seeds hold the predictions of
every seed, the registered one's first. ``predictions.parquet`` holds seed, row, label, prediction and outputs of the
gate's split, no texts: of models that write, numbers stand for them (``sealed_texts``). ``evaluation.json`` holds the
figures, and a digest of the rows. Two evaluations with equal digests are of the same rows in the same order, so that
they can be compared row by row even across runs. ``sentences`` of ``predictions.parquet`` are digests of each row's
texts, and ``learned.parquet`` holds the digests of the model's training sentences: champion and challenger are compared
on rows that neither has seen (``unseen_rows.py``), because a model that was trained on the rows would always win. Shape
letters: N rows, S seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from tasks.errors import DataError
from tasks.metrics.definition import Metric, metric_value
from tasks.metrics.metrics import METRICS
from tasks.ports.rows.row_files import read_split
from tasks.results.evaluation_facts import EvaluationFacts
from tasks.scoring.predictions import predictions_in, predictions_of, stored, stored_predictions
from tasks.scoring.quality.gain import Gain
from tasks.scoring.writing.sealed_texts import (
    SEALED,
    digests_in,
    metric_of_sealed,
    sealed_labels,
    sealed_texts,
    states_texts,
)
from tasks.task_types.answers import ANSWERS
from tasks.task_types.readers import READERS

SCHEMA = 1
FOLDER = "evaluation"
FIGURES, PREDICTIONS, LEARNED = "evaluation.json", "predictions.parquet", "learned.parquet"


@dataclass(frozen=True)
class JudgedRows:
    """The rows of a split: their ids in one run, their labels, their digest, and their groups."""

    split: str
    ids: list[int]
    labels_N: np.ndarray
    sha256: str
    groups_N: np.ndarray | None = None
    sentences_N: Sequence[Sequence[int]] | None = None
    """Digests of each row's sentences."""
    learned: np.ndarray | None = None
    """Digests of the sentences that the models of this run learn from, sorted."""
    units_N: np.ndarray | None = None
    """Groups of rows that are judged together, if there are any."""


@dataclass(frozen=True)
class Evaluation:
    """A model's predictions and figures, as read from disk."""

    about: EvaluationFacts
    labels_N: np.ndarray
    predictions_SN: np.ndarray
    groups_N: np.ndarray | None = None
    """The group of each row; None for versions registered by releases that did not store groups."""
    sentences_N: Sequence[tuple[int, ...]] | None = None
    learned: np.ndarray | None = None
    """As in ``JudgedRows``; None for versions registered by releases that did not store them."""
    units_N: np.ndarray | None = None
    """As in ``JudgedRows``."""

    @property
    def answers_1N(self) -> np.ndarray:
        """The registered model's predictions."""
        return self.predictions_SN[:1]

    @property
    def sentences_of_rows(self) -> Sequence[tuple[int, ...]]:
        """Digests of each row's sentences; of texts that are read one by one, of both texts of their pair."""
        found = self.sentences_N or ()
        reader = READERS.get(str(self.about.get("kind")))
        if reader is None or not reader.reads_apart:
            return found
        pairs = [(*first, *second) for first, second in zip(found[::2], found[1::2], strict=True)]
        return [pair for pair in pairs for _ in range(2)]

    @property
    def rows(self) -> str:
        """The digest of the rows."""
        return str(self.about["rows_sha256"])


def read_judged_rows(folder: Path, split: str, digest: str) -> JudgedRows:
    """Return ids, labels and groups of a split. Its digest was computed when the rows were prepared, from texts and
    labels in order, without the ids."""
    rows = read_split(folder, split)
    return JudgedRows(split, rows.ids, rows.labels_N, digest, rows.groups_N, units_N=rows.units_N)


def write_evaluation(folder: Path, scorecard: Path, rows: JudgedRows, about: Mapping[str, object]) -> Path:
    """Write the model's predictions on one split, taken from a scorecard in the order of the rows, together with the
    figures.

    If a scorecard has several seeds, the model is the first.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    answers = predictions_of(scorecard, rows.split, rows.ids)
    count = len(rows.ids)
    folder.mkdir(parents=True)
    labels_N, predictions_N, outputs, own = rows.labels_N, answers.predictions_N, answers.outputs, dict[str, bool]()
    if states_texts(about):
        predictions_N = sealed_texts(predictions_N, labels_N, str(about["kind"]))
        labels_N, outputs, own = sealed_labels(labels_N), {}, {SEALED: True}
    columns = {
        "seed": pa.array([0] * count, pa.int64()),
        "row": pa.array(range(count), pa.int64()),
        "group": pa.array([None] * count if rows.groups_N is None else rows.groups_N, pa.int64()),
        "label": pa.array(labels_N),
        "prediction": stored_predictions(predictions_N),
        **stored(outputs),
        "sentences": pa.array([None] * count if rows.sentences_N is None else rows.sentences_N, pa.list_(pa.int64())),
    }
    if rows.units_N is not None:
        columns["unit"] = pa.array(rows.units_N, pa.int64())
    if rows.learned is not None:
        pq.write_table(pa.table({"sentence": pa.array(rows.learned, pa.int64())}), folder / LEARNED, compression="zstd")
    pq.write_table(pa.table(columns), folder / PREDICTIONS, compression="zstd")
    described = {
        "schema": SCHEMA,
        "split": rows.split,
        "rows": count,
        "rows_sha256": rows.sha256,
        "seeds": 1,
        "predictions_sha256": sha256((folder / PREDICTIONS).read_bytes()).hexdigest(),
    }
    (folder / FIGURES).write_text(json.dumps({**about, **own, **described}, indent=1, sort_keys=True))
    return folder


def read_evaluation(folder: Path) -> Evaluation:
    """Return an evaluation. Raises DataError where it is damaged or incomplete."""
    import pyarrow.parquet as pq

    try:
        about = json.loads((folder / FIGURES).read_text())
        body = (folder / PREDICTIONS).read_bytes()
        if about["schema"] != SCHEMA or sha256(body).hexdigest() != about["predictions_sha256"]:
            raise DataError("its predictions are not the evaluated ones, or have another format")
        table = pq.ParquetFile(folder / PREDICTIONS).read(["label", "prediction", "group", "sentences", "unit"])
        shape = (int(about["seeds"]), int(about["rows"]))
        labels_SN, predictions_SN = (
            predictions_in(table.column(name)).reshape(shape) for name in ("label", "prediction")
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"its evaluation cannot be read ({type(error).__name__})") from error
    if states_texts(about) and not about.get(SEALED):  # registered by a release that stored the texts
        kind, right_N = str(about["kind"]), labels_SN[0]
        predictions_SN = np.stack([sealed_texts(each_N, right_N, kind) for each_N in predictions_SN])
        labels_SN, about[SEALED] = sealed_labels(right_N)[None], True
    groups = table.column("group").to_pylist()[: shape[1]] if "group" in table.column_names else None
    sentences = (
        [tuple(row or ()) for row in table.column("sentences").to_pylist()[: shape[1]]]
        if "sentences" in table.column_names
        else None
    )
    units = table.column("unit").to_numpy()[: shape[1]] if "unit" in table.column_names else None
    learned = folder / LEARNED
    known = pq.ParquetFile(learned).read().column("sentence").to_numpy() if learned.is_file() else None
    return Evaluation(
        about,
        labels_SN[0],
        predictions_SN,
        np.asarray(groups, dtype=np.int64) if groups and None not in groups else None,
        sentences if sentences and all(sentences) else None,
        known,
        units,
    )


def metric_of(name: str, one: Evaluation) -> Metric:
    """Return a metric as it reads the predictions of an evaluation."""
    return metric_of_sealed(name) if one.about.get(SEALED) else METRICS[name]


def paired_gain(metric: str, ours: Evaluation, theirs: Evaluation, confidence: float = 0.95) -> Gain:
    """Return our metric minus theirs on the same rows; the sign is reversed for errors, so that more is better. The
    interval has the degrees of freedom of the groups of rows (``welch``), and so needs two; raises DataError for one.
    """
    from tasks.scoring.quality.intervals import paired_difference

    require_same_rows(ours, theirs)
    require_groups(ours, 2)
    found = paired_difference(
        metric_of(metric, ours),
        ours.answers_1N,
        theirs.answers_1N,
        ours.labels_N,
        confidence=confidence,
        groups_N=ours.groups_N,
        units_N=ours.units_N,
    )
    turned = METRICS[metric].lower_is_better
    return Gain(-found.value, -found.high, -found.low) if turned else Gain(found.value, found.low, found.high)


def bound_interval(
    metric: str, ours: Evaluation, theirs: Evaluation, by: str, confidence: float, resamples: int = 1000
) -> Gain:
    """Return a figure of ours with its percentile interval, as a bound of the gate reads it, on the same resampled rows
    as theirs.

    ``by`` names the uncertain quantity: "own" the metric itself, "retained" the share of their quality
    (``retained_share``), "share" ours over theirs in the metric's own unit (times theirs), "difference" the distance to
    theirs in the metric's own unit (added to theirs). At 0.95 these are the intervals of a scorecard. Raises DataError
    where rows differ, or where theirs is so small that a share of it is meaningless, and where rows are of fewer groups
    than percentiles need.
    """
    from tasks.scoring.quality.intervals import bounds, divides, enough, retained_share, why_no_share
    from tasks.scoring.quality.resampling import resampled
    from tasks.scoring.quality.verdicts import FEWEST_GROUPS

    require_same_rows(ours, theirs)
    require_groups(ours, FEWEST_GROUPS)
    function, both = metric_of(metric, ours), np.concatenate([ours.answers_1N, theirs.answers_1N])
    many, units_N = enough(resamples, confidence), ours.units_N
    ours_R, theirs_R = resampled(function, both, ours.labels_N, many, 0, ours.groups_N, units_N)
    value, other = (metric_value(function, each_N, ours.labels_N, units_N) for each_N in both)
    if by == "retained":
        found = retained_share(function, value, ours_R, other, theirs_R, confidence)
    elif by == "share":
        found = bounds(value, ours_R / theirs_R * other, confidence) if divides(other, theirs_R) else None
    else:
        found = bounds(value, ours_R if by == "own" else ours_R - theirs_R + other, confidence)
    if found is None:
        raise DataError(why_no_share(function, metric, value, other, by))
    return Gain(found.value, found.low, found.high)


def require_same_rows(ours: Evaluation, theirs: Evaluation) -> None:
    """Raise DataError if two evaluations are of different rows."""
    if ours.rows != theirs.rows:
        raise DataError(f"evaluated on other rows ({ours.rows[:8]} and {theirs.rows[:8]})")


def require_groups(one: Evaluation, fewest: int) -> None:
    """Raise DataError if the rows of an evaluation come in groups, and in fewer than that."""
    groups_N = one.units_N if one.groups_N is None else one.groups_N
    count = 0 if groups_N is None else len(np.unique(groups_N))
    if 0 < count < min(fewest, len(one.labels_N)):
        raise DataError(
            f"the {len(one.labels_N):,} rows are of {count} group{'s' if count > 1 else ''}, and an interval needs "
            f"{fewest}: hold out more groups"
        )


def agreement(then: Evaluation, now: Evaluation, task_type: str) -> float:
    """Return the share of rows on which a model, when run again, predicts the same as before."""
    require_same_rows(then, now)
    if then.about.get(SEALED) or now.about.get(SEALED):
        both = (digests_in(one.predictions_SN[0], sealed=bool(one.about.get(SEALED))) for one in (then, now))
        return float((next(both) == next(both)).mean())
    return float(ANSWERS[task_type].unchanged(then.predictions_SN[0], now.predictions_SN[0]).mean())
