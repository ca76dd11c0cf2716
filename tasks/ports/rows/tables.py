"""The rows of a task in the user's own tables (``table_files``), and checks of their columns and texts; labels are read
by the task type (``task_types/readers.py``)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.catalog import TaskSpec
from tasks.errors import DataError, MissingColumn
from tasks.ports.files.sources import nearest
from tasks.ports.rows.encodings import plain_name
from tasks.ports.rows.splits import Split, gathered_rows, no_train_file
from tasks.ports.rows.table_files import NOTHING_STATED, OpenTable, files_of_config, format_of, open_table, tables_in
from tasks.recipe.data import TableFormat
from tasks.task_types.interfaces import DerivedColumns, TableRows
from tasks.task_types.texts.cells import text_in_cell, texts_in_cells
from tasks.task_types.texts.json_cells import decoded_cells, decoded_objects
from tasks.task_types.texts.nested import is_nested, questions_of_paragraphs
from tasks.task_types.texts.templates import Unrendered, beginning, columns_in, rendered
from tasks.task_types.types import Column

if TYPE_CHECKING:
    import pyarrow as pa

USUAL_LABEL = TaskSpec.model_fields["label"].default
"""The label column that a task names unless it states another; where labels are optional, a table may lack it."""
VALIDATION_NAMES = ("validation", "valid", "dev", "val")
"""Usual names of the split that is no training and no test."""
SHARD = re.compile(r"-\d+-of-\d+(?=\.|$)")


@dataclass(frozen=True)
class ReadRows:
    """The rows of one split as they are read, unchecked."""

    rows: Split
    said: tuple[str, ...]
    """How each file was read, for users."""
    classes: tuple[str, ...]
    """Names of the classes that the first file declares for its labels, in order."""
    broken: tuple[str, ...]
    """Sentences about lines that are not as wide as the first one of their file."""
    is_delimited: bool


def split_files(source: Path, spec: TaskSpec, config: str | None = None) -> dict[str, list[Path]]:
    """Return the train file and, if there is one, the validation file; either may consist of shards."""
    if format_of(source) is not None or source.is_file():
        return {"train": [source]}
    declared = files_of_config(source, config) if config else {}
    files = tables_in(source / config if config and not declared else source)
    given = (declared.get(name) or validation_files(files, name) for name in (spec.validation, *VALIDATION_NAMES))
    validation = next((found for found in given if found), [])
    train = declared.get("train") or named_files(files, "train")
    if not train:
        raise DataError(no_train_file(source, files))
    for found, knob in ((train, ""), (validation, "name it in task.validation, ")):
        if len(found) > 1 and not declared and not all(SHARD.search(path.name) for path in found):
            raise DataError(
                f"{source} holds {', '.join(path.name for path in found)}; keep one of them, {knob}or name shards "
                f"like train-00000-of-00002.parquet"
            )
    return {"train": train} | ({"validation": validation} if validation else {})


def named_files(files: Sequence[Path], name: str) -> list[Path]:
    """Return the files whose names start with the name of a split."""
    return [path for path in files if path.name.startswith(name)]


def validation_files(files: Sequence[Path], name: str) -> list[Path]:
    """Return the files that have the name of a validation split or, if there are none, begin with it, as
    validation_amazon stands beside it; many a word begins with val."""
    return [path for path in files if shard_name(path) == name] or (named_files(files, name) if name != "val" else [])


def shard_name(path: Path) -> str:
    """Return the name that all shards of a table share, without the ending of their format."""
    name = SHARD.sub("", path.name)
    return name if path.is_dir() else plain_name(Path(name)).removesuffix(Path(plain_name(Path(name))).suffix)


def read_table(path: Path, given: TableFormat = NOTHING_STATED) -> tuple[pa.Table, OpenTable]:
    """Read one file as an Arrow table; labels of delimited files stay text (``typed``). Raises DataError if fewer rows
    are read than its lines promise."""
    import pyarrow as pa

    with open_table(path, given) as table:
        batches = list(table.batches)
        whole = pa.concat_tables(batches) if batches else pa.table({name: pa.array([]) for name in table.columns})
    if table.lines is not None and len(whole) != table.lines:
        count = f"{path.name}: {len(whole):,} rows were read, and its lines are {table.lines:,} rows"
        raise DataError(
            f"{'; '.join(broken_lines(table)) or count}; put texts that contain the delimiter into quotes, or state "
            f"delimiter, quoting and encoding in data.format"
        )
    if not is_nested(whole.schema):
        return whole, table
    flat = questions_of_paragraphs(whole, path.name)
    return flat, replace(table, columns=tuple(flat.column_names), said=f"{table.said}, questions of paragraphs")


def with_numbers(values: list[Any]) -> list[Any]:
    """Return the values of a delimited file's column as whole numbers if all are, else as numbers if all are; any other
    column as it is."""
    texts = [value for value in values if value is not None]
    if not texts or not all(isinstance(value, str) for value in texts):
        return values
    for number in (int, float):
        try:
            found = [None if value is None else number(value) for value in values]
        except ValueError:
            continue
        # A cell such as nan or inf is a word of its author, and no number.
        return values if any(isinstance(one, float) and not math.isfinite(one) for one in found) else found
    return values


def read_as_written(path: Path) -> pa.Table:
    """Read one file as an Arrow table whose values stay as they are written: a csv or tsv has texts alone, so that an
    id keeps its zeros."""
    return read_table(path)[0]


def read_split(
    paths: list[Path],
    spec: TaskSpec,
    columns: Sequence[Column],
    group: str | None = None,
    given: TableFormat = NOTHING_STATED,
    derive: DerivedColumns | None = None,
) -> ReadRows:
    """Return the task's columns of a file, or of its shards in order; ``columns`` are those of its type by role,
    ``group`` is a column of groups by which rows are divided (empty: the task's own), and ``derive`` adds columns that
    a table lacks (``Reader.derive``)."""
    read = [read_columns(path, spec, columns, group, given, derive) for path in paths]
    shards = [one.rows for one in read]
    pairs, groups, units = (
        [value for shard in shards for value in getattr(shard, name) or ()] for name in ("pairs", "groups", "units")
    )
    texts, labels = ([value for shard in shards for value in getattr(shard, name)] for name in ("texts", "labels"))
    rows = Split(
        paths[0].name,
        texts,
        pairs if spec.pair else None,
        labels,
        groups if group or spec.group else None,
        units if spec.group else None,
        (beginning(spec.text), beginning(spec.pair or "")),
    )
    said, broken = (tuple(line for one in read for line in getattr(one, name)) for name in ("said", "broken"))
    if any(column.is_gathered for column in columns):
        rows = gathered_rows(rows)
    return ReadRows(rows, said, read[0].classes, broken, all(one.is_delimited for one in read))


def read_columns(
    path: Path,
    spec: TaskSpec,
    columns: Sequence[Column],
    group: str | None,
    given: TableFormat = NOTHING_STATED,
    derive: DerivedColumns | None = None,
) -> ReadRows:
    """Return the task's columns of one file."""
    table, opened = read_table(path, given)
    if derive is not None and not {spec.text, spec.label} <= {*opened.columns}:
        table, derived = derive(table, path.name)
        opened = replace(opened, columns=tuple(table.column_names), said="; ".join((opened.said, *derived)))
    named = named_columns(spec)
    several = columns_named(spec.label, opened.columns, columns)
    for column in columns:
        if not column.required and named.get(column.role) == USUAL_LABEL:
            continue
        for name in several if column.several and several else [named.get(column.role)]:
            require_column(opened, column.role, name, required=column.required)
    for named_group in (group, spec.group):
        require_column(opened, "group", named_group, required=False)
    texts, notes = rendered_column(table, spec.text)
    pairs, more_notes = rendered_column(table, spec.pair) if spec.pair else (None, ())
    labels: list[Any]
    if several:
        labels = decoded_objects(table, several)
    else:
        labels = decoded_cells(table.column(spec.label)) if spec.label in opened.columns else [None] * len(texts)
    texts = texts_in_cells(texts, columns, path.name, spec.text)
    units = group_names(path, spec.group, rendered_column(table, spec.group)[0], "task.group") if spec.group else None
    groups = group_names(path, group, rendered_column(table, group)[0], "data.group") if group else units
    rows = Split(path.name, texts, pairs, labels if opened.layout is None else with_numbers(labels), groups, units)
    said = (reading_sentence(opened, len(table)), *(f"{path.name}: {note}" for note in (*notes, *more_notes)))
    classes, is_delimited = opened.classes.get(spec.label, ()), opened.layout is not None
    return ReadRows(rows, said, classes, broken_lines(opened), is_delimited)


def has_columns(path: Path, name: str, given: TableFormat = NOTHING_STATED) -> bool:
    """Tell whether a file has a column, or all columns of a template."""
    return {*columns_in(name)} <= {*read_table(path, given)[1].columns}


def rendered_column(table: pa.Table, name: str) -> tuple[list[Any], list[str]]:
    """Return the values of a column, or a template filled with the columns of every row, and sentences about passages
    that may not be meant."""
    columns = {each: decoded_cells(table.column(each)) for each in columns_in(name)}
    found, notes = rendered(name, columns, len(table))
    return found, [f"{count:,} {note}" for note, count in notes.items()]


def columns_named(label: str, known: Sequence[str], columns: Sequence[Column]) -> list[str]:
    """Return the columns that a label names with commas between them, where its type may have several; else none."""
    names = [name.strip() for name in label.split(",")]
    may = any(column.role == "label" and column.several for column in columns)
    return names if may and label not in known and len(names) > 1 else []


def reading_sentence(table: OpenTable, rows: int) -> str:
    """Return in words how a file was read."""
    several = ""
    if table.layout is not None and table.layout.reading.lines > table.layout.reading.rows:
        lines = table.layout.reading.lines - table.layout.has_header
        several = f" in {lines:,} lines: some texts stand on several lines"
    return f"{table.name}: {table.said}; {rows:,} rows{several}"


def broken_lines(table: OpenTable) -> tuple[str, ...]:
    """Return a sentence about lines that are not as wide as the first one; none if there are no such lines."""
    wrong = table.layout.reading.wrong if table.layout is not None else ()
    if not wrong:
        return ()
    line, cells = wrong[0]
    return (
        f"{table.name}: {count_of(len(wrong), 'line')} {'does' if len(wrong) == 1 else 'do'} not have "
        f"{len(table.columns)} cells like the first line (line {line} has {cells}"
        f"{others([one for one, _ in wrong[1:]], 'line')})",
    )


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def others(numbers: Sequence[int], noun: str) -> str:
    """Return a list of further lines or rows, at most five of them."""
    if not numbers:
        return ""
    more = ", …" if len(numbers) > 5 else ""
    return f"; also {noun}{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers[:5]))}{more}"


def named_columns(spec: TaskSpec) -> dict[str, str]:
    """Return the names of a task's columns by role, without those that it does not have."""
    named = {"text": spec.text, "pair": spec.pair, "label": spec.label}
    return {role: name for role, name in named.items() if name is not None}


def require_column(table: OpenTable, role: str, name: str | None, *, required: bool) -> None:
    """Raise DataError for a column that is not in the table, or that must be named and is not."""
    if name is None and required:
        raise DataError(f"the task names no {role} column; {table.name} has {', '.join(table.columns)}")
    missing = [each for each in columns_in(name) if each not in table.columns] if name is not None else []
    if not missing:
        return
    name = missing[0]
    if table.layout is not None and table.layout.looks_headless:
        raise DataError(
            f"{table.name} has no {role} column {name!r}, and its first line looks like a row; if the file has no "
            f"header, name its {count_of(len(table.columns), 'column')} in order, as in data.format.columns: "
            f"[{name}, …]"
        )
    hint = nearest(name, table.columns)
    raise MissingColumn(f"{table.name} has no {role} column {name!r}; it has {', '.join(table.columns)}{hint}")


def table_rows(read: ReadRows, spec: TaskSpec) -> TableRows:
    """Return rows for the reader of their task type."""
    values = {"text": read.rows.texts, "pair": read.rows.pairs, "label": read.rows.labels}
    columns = {role: column for role, column in values.items() if column is not None}
    return TableRows(read.rows.file, named_columns(spec), columns, read.classes, read.is_delimited)


def group_names(path: Path, column: str, values: list[Any], knob: str) -> list[str]:
    """Return the group names of rows; refuse a row without a group, because it could not be kept with its group."""
    empty = next((number for number, value in enumerate(values, start=1) if value is None or value == ""), None)
    if empty is not None:
        raise DataError(
            f"{path.name}, row {empty}: the group in column {column!r} is empty; give each row a group, or remove "
            f"{knob}"
        )
    return [str(value) for value in values]


def is_empty(text: Any) -> bool:
    """Tell whether a cell has no text."""
    return text is None or (isinstance(text, str) and not text.strip())


def drop_unlabelled(rows: Split, labels: Sequence[Any]) -> Split:
    """Return the rows that have a label, with the labels as they are stored."""
    return replace(rows, labels=list(labels)).take([row for row, label in enumerate(labels) if label is not None])


def read_texts(source: Path, text: str = "text", pair: str | None = None) -> tuple[list[str], list[str] | None]:
    """Return one or two text columns of a file or of all files in a folder; empty texts are left out."""
    rows: list[tuple[str, str | None]] = []
    for path in tables_in(source) or [source]:
        for batch in text_batches(path, [text, pair] if pair else [text]):
            seconds = batch[pair] if pair else [None] * len(batch[text])
            rows.extend(
                (text_in_cell(first), None if second is None else str(second))
                for first, second in zip(batch[text], seconds, strict=True)
                if not is_empty(first)
            )
    if not rows:
        raise DataError(f"{source} holds no text")
    return [first for first, _ in rows], [second or "" for _, second in rows] if pair else None


def require_text_columns(source: Path, names: Sequence[str], way_out: str) -> None:
    """Raise DataError if the first table of a source lacks one of some columns."""
    first = next(iter(tables_in(source)), source)
    wanted = ["text"] if plain_name(first).endswith(".txt") else names
    next(text_batches(first, wanted, way_out), None)


def text_batches(path: Path, names: Sequence[str], way_out: str = "") -> Iterator[dict[str, list[Any]]]:
    """Yield some columns of a file in batches."""
    with open_table(path) as table:
        for column in (column for name in names for column in columns_in(name)):
            if column not in table.columns:
                hint = way_out or nearest(column, table.columns)
                raise DataError(f"{path.name} has no column {column!r}; it has {', '.join(table.columns)}{hint}")
        for batch in table.batches:
            found = {name: rendered_column(batch, name)[0] for name in names}
            yield {name: [None if isinstance(one, Unrendered) else one for one in found[name]] for name in names}


def read_documents(source: Path, column: str) -> Iterator[str]:
    """Yield the texts of a corpus without holding it in memory."""
    files = tables_in(source) or [source]
    # Of a corpus with splits, read only the train files; the others are for evaluation.
    for path in [path for path in files if path.name.startswith("train")] or files:
        name = "text" if plain_name(path).endswith(".txt") else column
        for batch in text_batches(path, [name], "; set corpus.text"):
            yield from (text for text in batch[name] if not is_empty(text) and isinstance(text, str))
