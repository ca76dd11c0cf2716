"""What a model answered to the very rows that judged it: the evaluation that travels with a registered version.

``predictions.parquet`` holds seed, row, label, prediction and logits of the gate's split, no texts; ``evaluation.json`` the figures, and a digest
of the rows. Two evaluations with equal digests are of the same rows in the same order, wherever and whenever they were made, so that they can be
compared row by row.
Shape letters: N rows, S seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tasks.errors import DataError
from tasks.gate.criteria import Gain

SCHEMA = 1
FOLDER = "evaluation"


@dataclass(frozen=True)
class JudgedRows:
    """The rows of a split: their ids in one run, their labels, and what they hash to."""

    split: str
    ids: list[int]
    labels_N: np.ndarray
    sha256: str


@dataclass(frozen=True)
class Evaluation:
    """A model's answers and figures, read back."""

    about: Mapping[str, Any]
    labels_N: np.ndarray
    predictions_SN: np.ndarray

    @property
    def rows(self) -> str:
        """The digest of the rows."""
        return str(self.about["rows_sha256"])


def read_judged_rows(folder: Path, split: str, digest: str) -> JudgedRows:
    """Read ids and labels of a split; its digest was computed when the rows were prepared, of texts and labels in order, whatever ids they had."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(folder / f"{split}.parquet").read(["id", "label"]).to_pydict()
    return JudgedRows(split, table["id"], np.asarray(table["label"]), digest)


def write_evaluation(folder: Path, scorecard: Path, rows: JudgedRows, about: Mapping[str, Any]) -> Path:
    """Cut one split out of a scorecard's answers, in the order of the rows, and write it with the figures beside it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    answers = pq.ParquetFile(scorecard / "predictions.parquet").read().to_pydict()
    place = {number: index for index, number in enumerate(rows.ids)}
    kept = [(seed, place.get(number, -1), prediction, logits) for split, seed, number, prediction, logits in zip(
        *(answers[name] for name in ("split", "seed", "id", "prediction", "logits")), strict=True) if split == rows.split]  # fmt: skip
    kept.sort(key=lambda entry: entry[:2])
    seeds = sorted({entry[0] for entry in kept})
    if [entry[:2] for entry in kept] != [(seed, row) for seed in seeds for row in range(len(rows.ids))]:
        raise DataError(f"a scorecard answers other rows of {rows.split} than the recipe's; run the recipe again with --force score-model")
    folder.mkdir(parents=True)
    columns = {
        "seed": pa.array([entry[0] for entry in kept], pa.int64()), "row": pa.array([entry[1] for entry in kept], pa.int64()),
        "label": pa.array([rows.labels_N[entry[1]] for entry in kept]), "prediction": pa.array([entry[2] for entry in kept], pa.float64()),
        "logits": pa.array([entry[3] for entry in kept], pa.list_(pa.float32())),
    }  # fmt: skip
    pq.write_table(pa.table(columns), folder / "predictions.parquet", compression="zstd")
    described = {"schema": SCHEMA, "split": rows.split, "rows": len(rows.ids), "rows_sha256": rows.sha256, "seeds": len(seeds),
                 "predictions_sha256": sha256((folder / "predictions.parquet").read_bytes()).hexdigest()}  # fmt: skip
    (folder / "evaluation.json").write_text(json.dumps({**about, **described}, indent=1, sort_keys=True))
    return folder


def read_evaluation(folder: Path) -> Evaluation:
    """Read an evaluation; what is not whole is refused in one sentence."""
    import pyarrow.parquet as pq

    try:
        about = json.loads((folder / "evaluation.json").read_text())
        body = (folder / "predictions.parquet").read_bytes()
        if about["schema"] != SCHEMA or sha256(body).hexdigest() != about["predictions_sha256"]:
            raise DataError("its predictions are not those that were judged, or of another format")
        table = pq.ParquetFile(folder / "predictions.parquet").read(["label", "prediction"])
        shape = (int(about["seeds"]), int(about["rows"]))
        labels_SN, predictions_SN = (np.asarray(table.column(name)).reshape(shape) for name in ("label", "prediction"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"its evaluation cannot be read ({type(error).__name__})") from error
    return Evaluation(about, labels_SN[0], predictions_SN)


def paired_gain(metric: str, ours: Evaluation, theirs: Evaluation, confidence: float = 0.95) -> Gain:
    """Return how far our metric lies above theirs on the same rows, over the seeds of both; errors are turned, so that more is better."""
    from tasks.scoring.intervals import paired_difference
    from tasks.scoring.metrics import LOWER_IS_BETTER, METRICS

    if ours.rows != theirs.rows:
        raise DataError(f"judged on other rows ({ours.rows[:8]} and {theirs.rows[:8]})")
    found = paired_difference(METRICS[metric], ours.predictions_SN, theirs.predictions_SN, ours.labels_N, confidence=confidence)
    turned = METRICS[metric] in LOWER_IS_BETTER
    return Gain(-found.value, -found.high, -found.low) if turned else Gain(found.value, found.low, found.high)


def agreement(then: Evaluation, now: Evaluation, kind: str) -> float:
    """Return the share of rows on which a model, asked again, answers as it did; of several seeds the first is the one that was registered."""
    if then.rows != now.rows:
        raise DataError(f"judged on other rows ({then.rows[:8]} and {now.rows[:8]})")
    before_N, after_N = then.predictions_SN[0], now.predictions_SN[0]
    alike_N = before_N == after_N if kind == "classification" else np.isclose(before_N, after_N, rtol=1e-3, atol=1e-3)
    return float(alike_N.mean())
