"""Prepared rows on disk, of a task or of a judging set: the only writer and the only reader of their files.

A folder holds one Parquet file a split (``id``, ``text``, ``pair``, ``label`` and ``group``, the last three null where
there is none, and ``unit`` where rows are judged in groups) and ``task.json``. Of a task that file says what the engine
must know of it, of a judging set which classes are merged. ``before.json`` holds what stands before all texts and
second texts, and which of it are prompts; it is absent where nothing does. Engines read these files, so this module
imports nothing of ours but errors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

TASK, BEGINNINGS = "task.json", "before.json"
COLUMNS, UNIT = ["id", "text", "pair", "label", "group"], "unit"


@dataclass(frozen=True)
class RowFacts:
    """What a rows folder says of its task."""

    name: str
    kind: str
    labels: list[str] | None
    """Names of the classes; None for a task without classes."""
    metrics: list[str]
    headline: str
    pairs: bool
    truncate: str = "longest"
    """The text of a pair that is cut where both are too long."""


@dataclass(frozen=True)
class StoredRows:
    """One split as columns of N rows."""

    ids: list[int]
    texts: list[str]
    pairs: list[str] | None
    """Second texts; None where there is none at all."""
    labels: list[Any]
    """Classes or numbers; None where a row has no label."""
    groups: list[int] | None = None
    """Rows of one group are not independent; None where not every row has a group."""
    units: list[int] | None = None
    """Rows of one unit are judged together; None where each row is judged alone."""

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def labels_N(self) -> np.ndarray:
        """The labels as an array."""
        return np.asarray(self.labels)

    @cached_property
    def units_N(self) -> np.ndarray | None:
        """The units as an array."""
        return None if self.units is None else np.asarray(self.units, dtype=np.int64)

    @cached_property
    def groups_N(self) -> np.ndarray | None:
        """The groups as an array."""
        return None if self.groups is None else np.asarray(self.groups, dtype=np.int64)


def rows_file(folder: Path, split: str) -> Path:
    """Return where a split is."""
    return folder / f"{split}.parquet"


def has_split(folder: Path, split: str) -> bool:
    """Tell whether a folder holds a split."""
    return rows_file(folder, split).is_file()


def write_split(folder: Path, split: str, rows: StoredRows, label_type: pa.DataType | None = None) -> None:
    """Write a split with labels of an Arrow type; None for rows without labels, whose column is one of integers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    nothing = [None] * len(rows)
    columns = {
        "id": pa.array(rows.ids, pa.int64()),
        "text": pa.array(rows.texts, pa.string()),
        "pair": pa.array(nothing if rows.pairs is None else rows.pairs, pa.string()),
        "label": pa.array(rows.labels, pa.int64() if label_type is None else label_type),
        "group": pa.array(nothing if rows.groups is None else rows.groups, pa.int64()),
    }
    if rows.units is not None:
        columns[UNIT] = pa.array(rows.units, pa.int64())
    pq.write_table(pa.table(columns), rows_file(folder, split), compression="zstd")


def read_split(folder: Path, split: str) -> StoredRows:
    """Read a split; raises OSError where there is none."""
    table = columns_of(folder, split, [*COLUMNS, UNIT])
    groups = table.get("group")
    whole = groups if groups and None not in groups else None
    return StoredRows(table["id"], table["text"], present(table["pair"]), table["label"], whole, table.get(UNIT))


def read_texts(folder: Path, split: str) -> tuple[list[str], list[str] | None]:
    """Read the texts of a split and, of pairs, the second texts; raises OSError where there is no such split."""
    table = columns_of(folder, split, ["text", "pair"])
    return table["text"], present(table["pair"])


def columns_of(folder: Path, split: str, names: list[str]) -> dict[str, list[Any]]:
    """Read some columns of a split; files of earlier releases lack the newer ones."""
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = pq.ParquetFile(rows_file(folder, split)).read(names).to_pydict()
    return columns  # pyarrow's read_table would import pandas


def present(pairs: list[Any]) -> list[Any] | None:
    """Return second texts, or None where no row has one."""
    return pairs if any(pair is not None for pair in pairs) else None


def write_beginnings(folder: Path, before: Sequence[str], prompts: Sequence[str] = ("", "")) -> None:
    """Write what stands before all texts and all second texts, and which of it are ``prompts``: words that are followed
    by one column alone. Nothing is written where nothing stands there."""
    if any(before):
        (folder / BEGINNINGS).write_text(json.dumps({"before": list(before), "prompts": list(prompts)}))


def read_beginnings(folder: Path, key: str = "before") -> tuple[str, str]:
    """Read what stands before all texts and all second texts, or by the ``key`` prompts which of it are prompts; empty
    for nothing."""
    if not (folder / BEGINNINGS).is_file():
        return "", ""
    first, second = json.loads((folder / BEGINNINGS).read_text())[key]
    return first, second


def copy_but(folder: Path, output: Path, split: str) -> None:
    """Copy all files of a rows folder to another one but a split, which is written there anew."""
    output.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        if path != rows_file(folder, split):
            copyfile(path, output / path.name)


def copy_without(folder: Path, output: Path, split: str, gone_N: np.ndarray) -> None:
    """Copy a split to another folder without some of its rows; the others keep their ids."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(rows_file(folder, split)).read()
    pq.write_table(table.filter(pa.array(~gone_N)), rows_file(output, split), compression="zstd")


def write_facts(folder: Path, facts: RowFacts) -> None:
    """Write what a task is."""
    # Facts of a task without a knob are written as they were before there was the knob.
    values = {name: value for name, value in asdict(facts).items() if (name, value) != ("truncate", "longest")}
    (folder / TASK).write_text(json.dumps(values, sort_keys=True))


def read_facts(folder: Path) -> RowFacts:
    """Read what a task is; raises OSError where the folder does not say so."""
    return RowFacts(**json.loads((folder / TASK).read_text()))


def write_merged(folder: Path, merged: Sequence[int] | None) -> None:
    """Write of a judging set, by class, the number that it is merged into; None where no class is."""
    (folder / TASK).write_text(json.dumps({"merged": merged}))


def read_merged(folder: Path) -> list[int] | None:
    """Read which classes a judging set merges."""
    merged: list[int] | None = json.loads((folder / TASK).read_text())["merged"]
    return merged
