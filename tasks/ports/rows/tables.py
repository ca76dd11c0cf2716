"""Readers of the user's own tables (Parquet, CSV, TSV, JSON Lines and text), and checks of their columns, texts and
labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.files.sources import nearest
from tasks.ports.rows.splits import Split

MOST_CLASSES = 200

SHARD = re.compile(r"-\d+-of-\d+\.")
READERS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".txt": "text"}


def split_files(source: Path, spec: TaskSpec) -> dict[str, list[Path]]:
    """Return the train file and, if there is one, the validation file; either may consist of shards."""
    if source.is_file():
        return {"train": [source]}
    files = sorted(path for path in source.rglob("*") if path.suffix in READERS and path.is_file())
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
            f"{path.name} cannot be read as {READERS.get(path.suffix, 'a table')}: {str(error).splitlines()[0]}"
        ) from error


def write_table(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write a table as users bring them, in Parquet; its folder is made."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def read_split(paths: list[Path], spec: TaskSpec, group: str | None = None) -> Split:
    """Return the task's columns of a file, or of its shards in order; ``group`` is a column of groups."""
    shards = [read_columns(path, spec, group) for path in paths]
    pairs, groups = (
        [value for shard in shards for value in getattr(shard, name) or ()] for name in ("pairs", "groups")
    )
    texts, labels = ([value for shard in shards for value in getattr(shard, name)] for name in ("texts", "labels"))
    return Split(paths[0].name, texts, pairs if spec.pair else None, labels, groups if group else None)


def read_columns(path: Path, spec: TaskSpec, group: str | None) -> Split:
    """Return the task's columns of one file."""
    table = read_table(path)
    for role, column in (("text", spec.text), ("pair", spec.pair), ("label", spec.label), ("group", group)):
        if column is not None and column not in table.column_names:
            hint = nearest(column, table.column_names)
            raise DataError(
                f"{path.name} has no {role} column {column!r}; it has {', '.join(table.column_names)}{hint}"
            )
    texts, labels = table.column(spec.text).to_pylist(), table.column(spec.label).to_pylist()
    groups = group_names(path, group, table.column(group).to_pylist()) if group else None
    return Split(path.name, texts, table.column(spec.pair).to_pylist() if spec.pair else None, labels, groups)


def group_names(path: Path, column: str, values: list[Any]) -> list[str]:
    """Return the group names of rows; refuse a row without a group, because it could not be kept with its group."""
    empty = next((number for number, value in enumerate(values, start=1) if value is None or value == ""), None)
    if empty is not None:
        raise DataError(
            f"{path.name}, row {empty}: the group in column {column!r} is empty; give each row a group, or remove "
            f"data.group"
        )
    return [str(value) for value in values]


def label_names(path: Path, spec: TaskSpec, rows: Split) -> list[str]:
    """Return label names: those that the file declares, or else the distinct labels, sorted."""
    declared = declared_names(path, spec.label)
    if declared:
        return declared
    found = sorted(
        {label for label in rows.labels if label is not None and label != -1},
        key=lambda label: (isinstance(label, str), label),
    )
    if len(found) < 2 or len(found) > MOST_CLASSES:
        raise DataError(
            f"{rows.file} has {len(found)} different labels in column {spec.label!r}; 2 to {MOST_CLASSES} are "
            f"needed, or set kind: regression"
        )
    return [str(label) for label in found]


def declared_names(path: Path, column: str) -> list[str]:
    """Return the label names in a Parquet file's Hugging Face schema; empty if it has none."""
    if path.suffix != ".parquet":
        return []
    import pyarrow.parquet as pq

    described = json.loads((pq.read_schema(path).metadata or {}).get(b"huggingface", b"{}"))
    return list(described.get("info", {}).get("features", {}).get(column, {}).get("names") or [])


def clean(rows: Split, spec: TaskSpec, names: list[str] | None) -> int:
    """Check texts and convert labels to class numbers or values, in place; remove rows without a label and return their
    number."""
    for column, values in ((spec.text, rows.texts), (spec.pair, rows.pairs or [])):
        for number, text in enumerate(values):
            if not isinstance(text, str) or not text.strip():
                raise DataError(
                    f"{rows.file}, row {number + 1}: the text in column {column!r} is empty; remove the row or fill "
                    f"it in"
                )
    read = value_reader(spec, names)
    labels = [read(label, rows.file, number) for number, label in enumerate(rows.labels)]
    kept = [row for row, label in enumerate(labels) if label is not None]
    rows.labels = labels
    whole = rows.take(kept)
    rows.texts, rows.pairs, rows.labels, rows.groups = whole.texts, whole.pairs, whole.labels, whole.groups
    return len(labels) - len(kept)


def value_reader(spec: TaskSpec, names: list[str] | None) -> Any:
    """Return a function that converts one label, and returns None for a missing one."""
    if spec.kind == "regression":
        return read_number
    numbers = {name: index for index, name in enumerate(names or [])}

    def read(label: Any, file: str, row: int) -> int | None:
        if label is None or label == -1:
            return None
        if isinstance(label, int) and str(label) not in numbers and 0 <= label < len(numbers):
            return label
        if str(label) not in numbers:
            raise DataError(
                f"{file}, row {row + 1}: the label {label!r} is not one of {', '.join(numbers)}; correct it or name "
                f"it in task.labels"
            )
        return numbers[str(label)]

    return read


def read_number(label: Any, file: str, row: int) -> float | None:
    """Return a regression label as a finite number, or None for a missing one."""
    if label is None:
        return None
    try:
        value = float(label)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{file}, row {row + 1}: the label {label!r} is not a number; correct it, or set kind: classification"
        ) from error
    if not np.isfinite(value):
        raise DataError(f"{file}, row {row + 1}: the label is {value}; give a finite number")
    return value


def read_texts(source: Path, text: str = "text", pair: str | None = None) -> tuple[list[str], list[str] | None]:
    """Return one or two text columns of a file or of all files in a folder; empty texts are left out."""
    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.suffix in READERS)
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

    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.suffix in READERS)
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


def sniff(path: Path) -> dict[str, Any]:
    """Return a guess of the columns, kind and labels of a user's table."""
    table = read_table(path)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    words = {
        name: np.mean([len(str(value).split()) for value in values if value is not None] or [0])
        for name, values in columns.items()
    }
    label = next(
        (
            name
            for name in columns
            if name.lower() in ("label", "labels", "target", "class", "score", "sentiment", "category")
        ),
        None,
    )
    label = label or min(columns, key=lambda name: len(set(map(str, columns[name]))))
    texts = [
        name
        for name in sorted(columns, key=lambda name: -words[name])
        if name != label and all(isinstance(v, str) for v in columns[name][:50])
    ]
    if not texts:
        raise DataError(f"{path.name} has no text column beside {label!r}; it has {', '.join(columns)}")
    pair = texts[1] if len(texts) > 1 and words[texts[1]] >= 3 else None
    first, second = (texts[0], pair) if pair is None else sorted((texts[0], pair), key=list(columns).index)
    values = columns[label]
    regression = any(isinstance(value, float) and value != int(value) for value in values if value is not None)
    names = None if regression else sorted({str(value) for value in values if value is not None})
    return {
        "text": first,
        "pair": second,
        "label": label,
        "kind": "regression" if regression else "classification",
        "labels": names,
        "rows": len(values),
    }
