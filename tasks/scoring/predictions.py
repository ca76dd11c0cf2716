"""The predictions of candidates, row by row: the only writer and the only reader of a scorecard's predictions.

``predictions.parquet`` holds row id, prediction and logits for every split and seed, so that any figure can be computed
again from it, and two candidates can be compared row by row. Shape letters: N rows, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.errors import DataError

FILE = "predictions.parquet"


@dataclass(frozen=True)
class Predictions:
    """The predictions of one seed on one split."""

    split: str
    seed: int
    """Its position among the seeds of a scorecard; 0 is the model to be registered."""
    ids: list[int]
    predictions_N: np.ndarray
    """Classes or values, as floats."""
    logits_NC: np.ndarray
    """In float32."""

    def in_order(self, ids: Sequence[int]) -> Predictions:
        """Return the predictions in the order of the given rows. Raises DataError where they are of other rows."""
        place = {number: index for index, number in enumerate(self.ids)}
        if place.keys() != set(ids) or len(self.ids) != len(ids):
            raise DataError(
                f"a scorecard contains predictions for other rows of {self.split} than the recipe's; run the recipe "
                f"again with --force "
                f"score-model"
            )
        order = np.asarray([place[number] for number in ids], dtype=np.int64)
        return Predictions(self.split, self.seed, list(ids), self.predictions_N[order], self.logits_NC[order])


def write_predictions(folder: Path, answers: Sequence[Predictions]) -> None:
    """Write the predictions of all seeds on all splits."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [
        pa.table(
            {
                "split": pa.array([answer.split] * len(answer.ids), pa.string()),
                "seed": pa.array([answer.seed] * len(answer.ids), pa.int64()),
                "id": pa.array(answer.ids, pa.int64()),
                "prediction": pa.array(answer.predictions_N.astype(float)),
                "logits": pa.array([row.tolist() for row in answer.logits_NC], pa.list_(pa.float32())),
            }
        )
        for answer in answers
    ]
    pq.write_table(pa.concat_tables(tables), folder / FILE, compression="zstd")


def read_predictions(folder: Path) -> list[Predictions]:
    """Return the predictions of all seeds on all splits, in the order in which they were written."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(folder / FILE).read()  # read_table would import pandas
    rows: dict[tuple[str, int], list[int]] = {}
    for row, group in enumerate(zip(table["split"].to_pylist(), table["seed"].to_pylist(), strict=True)):
        rows.setdefault(group, []).append(row)
    ids, predictions = table["id"].to_pylist(), table["prediction"].to_numpy()
    logits = table["logits"].combine_chunks().flatten().to_numpy()
    logits_NC = logits.reshape(len(ids), -1) if len(ids) else np.empty((0, 0), np.float32)
    return [
        Predictions(split, seed, [ids[row] for row in found], predictions[found], logits_NC[found])
        for (split, seed), found in rows.items()
    ]


def predictions_of(folder: Path, split: str, ids: Sequence[int]) -> Predictions:
    """Return the registered model's predictions on a split, in the order of the given rows. Raises DataError where
    there are none, or where they are of other rows."""
    found = [one for one in read_predictions(folder) if (one.split, one.seed) == (split, 0)]
    nothing = Predictions(split, 0, [], np.empty(0), np.empty((0, 0), np.float32))
    return (found or [nothing])[0].in_order(ids)
