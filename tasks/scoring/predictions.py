"""The predictions of candidates, row by row: the only writer and the only reader of a scorecard's predictions.

``predictions.parquet`` holds row id, prediction and the model's outputs for every split and seed, so that any figure
can be computed again from it, and two candidates can be compared row by row. Each output is a column by its name in
``TaskType.outputs``, such as ``logits``. Shape letters: N rows, C numbers of an output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.errors import DataError

FILE = "predictions.parquet"
COLUMNS = ("split", "seed", "id", "prediction")
"""The columns beside the outputs."""


@dataclass(frozen=True)
class Predictions:
    """The predictions of one seed on one split."""

    split: str
    seed: int
    """Its position among the seeds of a scorecard; 0 is the model to be registered."""
    ids: list[int]
    predictions_N: np.ndarray
    """Classes or values, as floats."""
    outputs: Mapping[str, np.ndarray]
    """The model's outputs [N, C] by name, in float32."""

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
        outputs = {name: values[order] for name, values in self.outputs.items()}
        return Predictions(self.split, self.seed, list(ids), self.predictions_N[order], outputs)


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
                **stored(answer.outputs),
            }
        )
        for answer in answers
    ]
    pq.write_table(pa.concat_tables(tables), folder / FILE, compression="zstd")


def stored(outputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Return a column for each output, a list of numbers a row."""
    import pyarrow as pa

    return {
        name: pa.array([row.tolist() for row in values], pa.list_(pa.float32())) for name, values in outputs.items()
    }


def read_predictions(folder: Path) -> list[Predictions]:
    """Return the predictions of all seeds on all splits, in the order in which they were written."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(folder / FILE).read()  # read_table would import pandas
    rows: dict[tuple[str, int], list[int]] = {}
    for row, group in enumerate(zip(table["split"].to_pylist(), table["seed"].to_pylist(), strict=True)):
        rows.setdefault(group, []).append(row)
    ids, predictions = table["id"].to_pylist(), table["prediction"].to_numpy()
    outputs = {
        name: table[name].combine_chunks().flatten().to_numpy().reshape(len(ids), -1)
        for name in table.column_names
        if ids and name not in COLUMNS
    }
    return [
        Predictions(
            split,
            seed,
            [ids[row] for row in found],
            predictions[found],
            {name: values[found] for name, values in outputs.items()},
        )
        for (split, seed), found in rows.items()
    ]


def predictions_of(folder: Path, split: str, ids: Sequence[int]) -> Predictions:
    """Return the registered model's predictions on a split, in the order of the given rows. Raises DataError where
    there are none, or where they are of other rows."""
    found = [one for one in read_predictions(folder) if (one.split, one.seed) == (split, 0)]
    nothing = Predictions(split, 0, [], np.empty(0), {})
    return (found or [nothing])[0].in_order(ids)
