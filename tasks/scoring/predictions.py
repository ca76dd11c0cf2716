"""The predictions of candidates, row by row: the only writer and the only reader of a scorecard's predictions.

``predictions.parquet`` holds row id, prediction and the model's outputs for every split and seed, so that any figure
can be computed again from it, and two candidates can be compared row by row. Each output is a column by its name in
``TaskType.outputs``, such as ``logits``. Shape letters: N rows, C numbers of an output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.errors import DataError
from tasks.task_types.units import ragged_array

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
    """Classes or values, as floats; texts where each unit of a row has a prediction."""
    outputs: Mapping[str, np.ndarray]
    """The model's outputs [N, C] by name, in float32; an array [N] of arrays [U, C] where rows have several answers;
    texts [N] that were concluded from outputs."""

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
                "prediction": stored_predictions(answer.predictions_N),
                **stored(answer.outputs),
            }
        )
        for answer in answers
    ]
    pq.write_table(pa.concat_tables(tables), folder / FILE, compression="zstd")


def stored_predictions(predictions_N: np.ndarray) -> Any:
    """Return predictions as a column: numbers, or texts that have a prediction for each unit of their row."""
    import pyarrow as pa

    return pa.array(predictions_N if predictions_N.dtype.kind == "U" else predictions_N.astype(float))


def predictions_in(column: Any) -> np.ndarray:
    """Return the predictions of a column."""
    values = column.to_numpy()
    return np.asarray(values, dtype=str) if values.dtype == object else values


def stored(outputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Return a column for each output, a list of numbers a row, or a list of them for each unit of a row, or a text."""
    import pyarrow as pa

    numbers = pa.list_(pa.float32())
    return {
        name: pa.array(values)
        if values.dtype.kind == "U"
        else pa.array([row.tolist() for row in values], pa.list_(numbers) if values.dtype == object else numbers)
        for name, values in outputs.items()
    }


def outputs_in(column: Any, rows: int) -> np.ndarray:
    """Return the outputs of a column, rows first."""
    import pyarrow as pa

    if pa.types.is_string(column.type):
        return np.asarray(column.to_pylist(), dtype=str)
    whole = column.combine_chunks()
    if pa.types.is_list(column.type.value_type):
        return ragged_array([np.asarray(row.as_py(), dtype=np.float32) for row in whole])
    return np.asarray(whole.flatten().to_numpy().reshape(rows, -1))


def read_predictions(folder: Path) -> list[Predictions]:
    """Return the predictions of all seeds on all splits, in the order in which they were written."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(folder / FILE).read()  # read_table would import pandas
    rows: dict[tuple[str, int], list[int]] = {}
    for row, group in enumerate(zip(table["split"].to_pylist(), table["seed"].to_pylist(), strict=True)):
        rows.setdefault(group, []).append(row)
    ids, predictions = table["id"].to_pylist(), predictions_in(table["prediction"])
    outputs = {name: outputs_in(table[name], len(ids)) for name in table.column_names if ids and name not in COLUMNS}
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


def seeds_by_split(answers: Sequence[Predictions]) -> dict[str, list[Predictions]]:
    """Return predictions by split, each in the order of the seeds."""
    found: dict[str, list[Predictions]] = {}
    for one in sorted(answers, key=lambda answer: answer.seed):
        found.setdefault(one.split, []).append(one)
    return found


def predictions_of(folder: Path, split: str, ids: Sequence[int]) -> Predictions:
    """Return the registered model's predictions on a split, in the order of the given rows. Raises DataError where
    there are none, or where they are of other rows."""
    found = [one for one in read_predictions(folder) if (one.split, one.seed) == (split, 0)]
    nothing = Predictions(split, 0, [], np.empty(0), {})
    return (found or [nothing])[0].in_order(ids)
