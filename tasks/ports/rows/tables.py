"""Readers of the user's own tables (Parquet, CSV, TSV, JSON Lines and text), and checks of their columns and texts;
labels are read by the task type (``task_types/readers.py``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.files.sources import nearest
from tasks.ports.rows.splits import Split
from tasks.task_types.interfaces import TableGuess, TableRows
from tasks.task_types.readers import READERS
from tasks.task_types.types import Column

SHARD = re.compile(r"-\d+-of-\d+\.")
TABLE_FORMATS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".txt": "text"}


def split_files(source: Path, spec: TaskSpec) -> dict[str, list[Path]]:
    """Return the train file and, if there is one, the validation file; either may consist of shards."""
    if source.is_file():
        return {"train": [source]}
    files = sorted(path for path in source.rglob("*") if path.suffix in TABLE_FORMATS and path.is_file())
    names = (spec.validation, "validation", "valid", "dev")
    validation = next(
        (found for name in names if (found := [path for path in files if path.name.startswith(name)])), []
    )
    train = [path for path in files if path.name.startswith("train")]
    if not train:
        raise DataError(
            f"{source} holds no train file; found {', '.join(path.name for path in files) or 'nothing'}; name one "
            f"train.csv or train.parquet"
        )
    for found in (train, validation):
        if len(found) > 1 and not all(SHARD.search(path.name) for path in found):
            raise DataError(
                f"{source} holds {', '.join(path.name for path in found)}; keep one of them, or name shards like "
                f"train-00000-of-00002.parquet"
            )
    return {"train": train} | ({"validation": validation} if validation else {})


def read_table(path: Path) -> Any:
    """Read one file as an Arrow table."""
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    try:
        if path.suffix == ".parquet":
            return pyarrow.parquet.read_table(path)
        if path.suffix == ".jsonl":
            return pyarrow.json.read_json(path)
        if path.suffix == ".txt":
            import pyarrow

            return pyarrow.table(
                {"text": [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]}
            )
        options = pyarrow.csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",", newlines_in_values=True)
        return pyarrow.csv.read_csv(path, parse_options=options)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path.name} cannot be read as {TABLE_FORMATS.get(path.suffix, 'a table')}: {str(error).splitlines()[0]}"
        ) from error


def read_as_written(path: Path) -> Any:
    """Read one file as an Arrow table whose values stay as they are written: a csv or tsv has texts alone, so that an
    id keeps its zeros."""
    table = read_table(path)
    if TABLE_FORMATS.get(path.suffix) != "csv":
        return table
    import pyarrow
    import pyarrow.csv

    parsing = pyarrow.csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",", newlines_in_values=True)
    types = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(table.column_names, pyarrow.string()))
    return pyarrow.csv.read_csv(path, parse_options=parsing, convert_options=types)


def write_table(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write a table as users bring them, in Parquet; its folder is made."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def read_split(paths: list[Path], spec: TaskSpec, columns: Sequence[Column], group: str | None = None) -> Split:
    """Return the task's columns of a file, or of its shards in order; ``columns`` are those of its type by role, and
    ``group`` is a column of groups."""
    shards = [read_columns(path, spec, columns, group) for path in paths]
    pairs, groups = (
        [value for shard in shards for value in getattr(shard, name) or ()] for name in ("pairs", "groups")
    )
    texts, labels = ([value for shard in shards for value in getattr(shard, name)] for name in ("texts", "labels"))
    return Split(paths[0].name, texts, pairs if spec.pair else None, labels, groups if group else None)


def read_columns(path: Path, spec: TaskSpec, columns: Sequence[Column], group: str | None) -> Split:
    """Return the task's columns of one file."""
    table, named = read_table(path), named_columns(spec)
    for column in columns:
        require_column(path, table, column.role, named.get(column.role), required=column.required)
    require_column(path, table, "group", group, required=False)
    texts, labels = table.column(spec.text).to_pylist(), table.column(spec.label).to_pylist()
    groups = group_names(path, group, table.column(group).to_pylist()) if group else None
    return Split(path.name, texts, table.column(spec.pair).to_pylist() if spec.pair else None, labels, groups)


def named_columns(spec: TaskSpec) -> dict[str, str]:
    """Return the names of a task's columns by role, without those that it does not have."""
    named = {"text": spec.text, "pair": spec.pair, "label": spec.label}
    return {role: name for role, name in named.items() if name is not None}


def require_column(path: Path, table: Any, role: str, name: str | None, *, required: bool) -> None:
    """Raise DataError for a column that is not in the table, or that must be named and is not."""
    if name is None and required:
        raise DataError(f"the task names no {role} column; {path.name} has {', '.join(table.column_names)}")
    if name is not None and name not in table.column_names:
        hint = nearest(name, table.column_names)
        raise DataError(f"{path.name} has no {role} column {name!r}; it has {', '.join(table.column_names)}{hint}")


def table_rows(rows: Split, spec: TaskSpec, declared: Sequence[str] = ()) -> TableRows:
    """Return rows for the reader of their task type; ``declared`` are the label names in the file's schema."""
    values = {"text": rows.texts, "pair": rows.pairs, "label": rows.labels}
    columns = {role: column for role, column in values.items() if column is not None}
    return TableRows(rows.file, named_columns(spec), columns, declared)


def group_names(path: Path, column: str, values: list[Any]) -> list[str]:
    """Return the group names of rows; refuse a row without a group, because it could not be kept with its group."""
    empty = next((number for number, value in enumerate(values, start=1) if value is None or value == ""), None)
    if empty is not None:
        raise DataError(
            f"{path.name}, row {empty}: the group in column {column!r} is empty; give each row a group, or remove "
            f"data.group"
        )
    return [str(value) for value in values]


def declared_names(path: Path, column: str) -> list[str]:
    """Return the label names in a Parquet file's Hugging Face schema; empty if it has none."""
    if path.suffix != ".parquet":
        return []
    import pyarrow.parquet as pq

    described = json.loads((pq.read_schema(path).metadata or {}).get(b"huggingface", b"{}"))
    return list(described.get("info", {}).get("features", {}).get(column, {}).get("names") or [])


def require_texts(rows: Split, spec: TaskSpec) -> None:
    """Raise DataError for a row with an empty text."""
    for column, values in ((spec.text, rows.texts), (spec.pair, rows.pairs or [])):
        for number, text in enumerate(values):
            if not isinstance(text, str) or not text.strip():
                raise DataError(
                    f"{rows.file}, row {number + 1}: the text in column {column!r} is empty; remove the row or fill "
                    f"it in"
                )


def drop_unlabelled(rows: Split, labels: Sequence[Any]) -> Split:
    """Return the rows that have a label, with the labels as they are stored."""
    return replace(rows, labels=list(labels)).take([row for row, label in enumerate(labels) if label is not None])


def read_texts(source: Path, text: str = "text", pair: str | None = None) -> tuple[list[str], list[str] | None]:
    """Return one or two text columns of a file or of all files in a folder; empty texts are left out."""
    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.suffix in TABLE_FORMATS)
    rows: list[tuple[str, str | None]] = []
    for path in files:
        table = read_table(path)
        for column in filter(None, (text, pair)):
            if column not in table.column_names:
                raise DataError(
                    f"{path.name} has no column {column!r}; it has "
                    f"{', '.join(table.column_names)}{nearest(column, table.column_names)}"
                )
        seconds = table.column(pair).to_pylist() if pair else [None] * len(table)
        rows.extend(
            (first, second)
            for first, second in zip(table.column(text).to_pylist(), seconds, strict=True)
            if first and first.strip()
        )
    if not rows:
        raise DataError(f"{source} holds no text")
    return [first for first, _ in rows], [second or "" for _, second in rows] if pair else None


def read_documents(source: Path, column: str) -> Iterator[str]:
    """Yield the texts of a corpus without holding it in memory."""
    import pyarrow.parquet as pq

    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.suffix in TABLE_FORMATS)
    # Of a corpus with splits, read only the train files; the others are for evaluation.
    trained = [path for path in files if path.name.startswith("train")] or files
    for path in trained:
        if path.suffix != ".parquet":
            yield from read_texts(path, column if path.suffix != ".txt" else "text")[0]
            continue
        table = pq.ParquetFile(path)
        if column not in table.schema_arrow.names:
            raise DataError(
                f"{path.name} has no text column {column!r}; it has {', '.join(table.schema_arrow.names)}; set "
                f"corpus.text"
            )
        for part in table.iter_batches(200, columns=[column]):
            yield from (text for text in part.column(column).to_pylist() if text and text.strip())


def sniff(path: Path) -> tuple[str, TableGuess]:
    """Return the task type that fits a user's table best, and how the table would be used. Raises DataError if none
    fits."""
    table = read_table(path)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    guesses = {name: guess for name, reader in READERS.items() if (guess := reader.guess(columns)) is not None}
    if not guesses:
        needed = "; ".join(f"{name}: {columns_in_words(reader.columns)}" for name, reader in READERS.items())
        raise DataError(
            f"{path.name} has the columns {', '.join(columns)}, which fit no task type; needed are {needed}"
        )
    best = max(guesses, key=lambda name: guesses[name].fit)
    return best, guesses[best]


def columns_in_words(columns: Sequence[Column]) -> str:
    """Return the columns that a table must have, as a user would name them."""
    return ", ".join(f"{column.role} ({column.description})" for column in columns if column.required)
