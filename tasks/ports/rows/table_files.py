"""The one reader of tables of users: files and saved datasets of every format, through the library ``datasets``.

No loader runs code of a folder: files are read by the loader of their ending, and there is none for pickles. Texts of
delimited files stay as they are written, ``NA`` and ``null`` too; only an empty cell is nothing.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from glob import escape
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tasks.errors import DataError
from tasks.ports.rows.delimited import Layout, layout_of, lines_of
from tasks.ports.rows.encodings import as_plain_text, plain_name
from tasks.recipe.data import TableFormat
from tasks.task_types.texts.tagged_lines import TAGS_COLUMN, WORDS_COLUMN, tagged_sentences
from tasks.task_types.texts.text_fields import text_fields, with_text_fields

if TYPE_CHECKING:
    import pyarrow as pa

NOTHING_STATED = TableFormat()
"""Nothing is stated: the layout of a file is found."""
UNREADABLE = OSError, ValueError, KeyError, TypeError, StopIteration
"""Errors of libraries that read a file, beside those of datasets."""
ROWS_OF_A_BATCH = 1000
"""Rows of one batch, which bounds the memory of a streamed table."""
STATE_FILE, SPLITS_FILE = "state.json", "dataset_dict.json"
"""Files that ``save_to_disk`` writes beside the rows of a dataset, and beside the splits of several."""


@dataclass(frozen=True)
class OpenTable:
    """A table whose rows are read batch by batch."""

    name: str
    columns: tuple[str, ...]
    batches: Iterator[pa.Table]
    said: str
    """How the file is read, for users."""
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the classes that the file declares for a column, in order."""
    layout: Layout | None = None
    """The layout of a delimited file."""
    lines: int | None = None
    """Rows that the lines of the file promise; None for formats without lines."""


Opener = Callable[[Path, TableFormat], Any]
"""Returns a context that yields the open table of a file."""


# --- formats ----------------------------------------------------------------------------------------------------------


@contextmanager
def open_delimited(path: Path, given: TableFormat) -> Iterator[OpenTable]:
    """Open a csv or tsv file, with delimiter, quoting and encoding as they are found."""
    import datasets

    with as_plain_text(path, given.encoding) as (plain, encoding):
        layout = layout_of(plain, plain_name(path), given)
        reading = layout.reading
        options = {
            "features": datasets.Features({name: datasets.Value("string") for name in layout.columns}),
            "sep": reading.delimiter,
            "quoting": 0 if reading.quoted else 3,
            "names": list(layout.columns),
            "header": 0 if layout.has_header else None,
            "index_col": False,
            "keep_default_na": False,
            "na_values": [""],
            "on_bad_lines": "skip",  # they are counted already, and reported
        }
        with streamed("csv", plain, options) as (batches, _, _):
            too_long = sum(cells > len(layout.columns) for _, cells in reading.wrong)
            said = f"{encoding}, {layout.sentence}"
            yield OpenTable(
                path.name, layout.columns, batches, said, layout=layout, lines=max(layout.rows - too_long, 0)
            )


@contextmanager
def open_json(path: Path, given: TableFormat) -> Iterator[OpenTable]:
    """Open a file of JSON lines, of one list of objects, or of one object that contains one such list."""
    import datasets

    with as_plain_text(path, given.encoding) as (plain, encoding):
        place = field_of_rows(plain) if plain.suffix == ".json" else None
        lines = lines_of(plain) if plain.suffix == ".jsonl" else None
        try:
            with streamed("json", plain, {"field": place} if place else {}) as (batches, columns, classes):
                shape = f"JSON, rows in {place!r}" if place else "JSON"
                yield OpenTable(path.name, columns, batches, f"{encoding}, {shape}", classes, lines=lines)
        except (*UNREADABLE, datasets.exceptions.DatasetsError) as error:
            if plain.suffix == ".jsonl" and (broken := first_broken_line(plain)):
                raise DataError(f"{path.name}, {broken}; correct it") from error
            raise


def first_broken_line(path: Path) -> str:
    """Return in words the first line of a file of JSON lines that is not one object; empty if all are."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                if line.strip() and not isinstance(json.loads(line), dict):
                    return f"line {number} is no object with the columns of a row"
            except json.JSONDecodeError as error:
                return f"line {number} is not JSON: {error.msg.removesuffix(' at')} at character {error.colno}"
    return ""


@contextmanager
def open_text(path: Path, given: TableFormat) -> Iterator[OpenTable]:
    """Open a text file: each line is one text."""
    with as_plain_text(path, given.encoding) as (plain, encoding):
        with streamed("text", plain, {}) as (batches, columns, classes):
            yield OpenTable(path.name, columns, batches, f"{encoding}, one text a line", classes)


@contextmanager
def open_tagged(path: Path, given: TableFormat) -> Iterator[OpenTable]:
    """Open a file of tagged words, one a line: each sentence is a row."""
    import pyarrow as pa

    with as_plain_text(path, given.encoding) as (plain, encoding), plain.open(encoding="utf-8") as file:
        sentences = tagged_sentences(file, path.name)

        def batches() -> Iterator[pa.Table]:
            while part := list(islice(sentences, ROWS_OF_A_BATCH)):
                words, tags = ([one[place] for one in part] for place in range(2))
                yield pa.table({WORDS_COLUMN: words, TAGS_COLUMN: tags})

        yield OpenTable(path.name, (WORDS_COLUMN, TAGS_COLUMN), batches(), f"{encoding}, one word and its tag a line")


@contextmanager
def open_columnar(path: Path, given: TableFormat) -> Iterator[OpenTable]:
    """Open a Parquet or Arrow file, whose schema says everything."""
    form = path.suffix.removeprefix(".").lower()
    with streamed(form, path, {}) as (batches, columns, classes):
        yield OpenTable(path.name, columns, batches, form.capitalize(), classes)


@contextmanager
def open_saved(path: Path, given: TableFormat) -> Iterator[OpenTable]:
    """Open a folder that ``save_to_disk`` has written. Raises DataError where it names files outside of itself."""
    import datasets

    state = json.loads((path / STATE_FILE).read_text())
    if any(Path(str(one.get("filename", ""))).name != one.get("filename") for one in state.get("_data_files", [])):
        raise DataError(f"{path} names files outside of itself; save the dataset again with save_to_disk")
    rows = datasets.load_from_disk(str(path))
    yield OpenTable(
        path.name,
        tuple(rows.column_names),
        rows.with_format("arrow").iter(ROWS_OF_A_BATCH),
        "a saved dataset",
        classes_of(rows.features),
    )


FORMATS: dict[str, Opener] = {
    ".csv": open_delimited,
    ".tsv": open_delimited,
    ".json": open_json,
    ".jsonl": open_json,
    ".txt": open_text,
    ".conll": open_tagged,
    ".bio": open_tagged,
    ".parquet": open_columnar,
    ".arrow": open_columnar,
}
"""The opener of a file by its ending; all but the last two may end with ``.gz``, too."""


@contextmanager
def streamed(
    loader: str, path: Path, options: Mapping[str, object]
) -> Iterator[tuple[Iterator[pa.Table], tuple[str, ...], dict[str, tuple[str, ...]]]]:
    """Yield the rows of a file in batches, its columns, and the classes that it declares; nothing is stored."""
    import datasets

    datasets.utils.logging.set_verbosity(datasets.utils.logging.CRITICAL)  # our errors say the same in one sentence
    datasets.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", "Length of header or names does not match")  # such lines are counted already
    with TemporaryDirectory(prefix="limbeck-table-") as cache:
        options = {"data_files": {"train": [escape(str(path))]}, "streaming": True, "cache_dir": cache, **options}
        try:
            with without_torch():
                rows = datasets.load_dataset(loader, split="train", **options).with_format("arrow")
        except StopIteration as error:  # the loader of JSON looks at a first row
            raise DataError(f"{path.name} has no rows; name a table with rows") from error
        batches = rows.iter(ROWS_OF_A_BATCH)
        first = next(batches, None)
        columns = tuple(first.column_names) if first is not None else tuple(rows.column_names or ())
        yield chain([] if first is None else [first], batches), columns, classes_of(rows.features)


@contextmanager
def without_torch() -> Iterator[None]:
    """Keep datasets from importing torch, which takes a second: no tensor is made of these rows."""
    import datasets

    before, datasets.config.TORCH_AVAILABLE = datasets.config.TORCH_AVAILABLE, False
    try:
        yield
    finally:
        datasets.config.TORCH_AVAILABLE = before


def classes_of(features: Mapping[str, object] | None) -> dict[str, tuple[str, ...]]:
    """Return the names of classes by column, for columns that declare them."""
    import datasets

    # Classes of a list are declared by what it lists.
    single = {name: getattr(one, "feature", one) for name, one in (features or {}).items()}
    declared = {name: one for name, one in single.items() if isinstance(one, datasets.ClassLabel)}
    return {name: tuple(one.names or ()) for name, one in declared.items()}


def field_of_rows(path: Path) -> str | None:
    """Return the name under which a file of one JSON object keeps its rows; None for a file that is a list, or lines.
    Raises DataError for several such names."""
    with path.open(encoding="utf-8") as file:
        start = file.read(4096).lstrip()[:1]
    if start != "{":
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None  # JSON lines under another name
    if is_by_columns(content):
        raise DataError(
            f"{path.name} holds columns and no rows, as pandas writes them unless told otherwise; write it with "
            f"to_json(..., orient='records')"
        )
    fields = [name for name, value in content.items() if is_list_of_rows(value)]
    if len(fields) > 1:
        raise DataError(f"{path.name} has several lists of rows: {', '.join(fields)}; save one of them as a file")
    return next(iter(fields), None)


def is_by_columns(content: Mapping[str, Any]) -> bool:
    """Tell whether a JSON object is a table by columns: an object or a list of values for each, of equal lengths, or
    the names of all columns beside their values."""
    if {"columns", "data"} <= set(content):
        return isinstance(content["columns"], list) and isinstance(content["data"], list)
    columns = [list(one.values()) if isinstance(one, dict) else one for one in content.values()]
    if len(columns) < 2 or not all(isinstance(one, list) for one in columns):
        return False
    nested = any(isinstance(cell, (dict, list)) for one in columns for cell in one)
    return not nested and len({len(one) for one in columns}) == 1 and len(columns[0]) > 1


def is_list_of_rows(value: Any) -> bool:
    """Tell whether a value is a list of objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


# --- files ------------------------------------------------------------------------------------------------------------


def format_of(path: Path) -> Opener | None:
    """Return the opener of a file or of a saved dataset; None if it is no table."""
    if path.is_dir():
        return open_saved if (path / STATE_FILE).is_file() else None
    opener = FORMATS.get(Path(plain_name(path)).suffix.lower())
    return None if opener is open_columnar and path.suffix == ".gz" else opener


@contextmanager
def open_table(path: Path, given: TableFormat = NOTHING_STATED) -> Iterator[OpenTable]:
    """Open one file or saved dataset. Raises DataError if it cannot be read, also in the middle of it."""
    opener = format_of(path)
    if opener is None:
        raise DataError(
            f"{path.name} is not a table that can be read; name a file that ends with {', '.join(FORMATS)} or .gz "
            f"after these, or a folder that datasets' save_to_disk wrote"
        )
    import datasets

    try:
        with opener(path, given) as table:
            yield table if table.layout is not None else with_open_objects(table)
    except (*UNREADABLE, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"{path.name} cannot be read: {first_cause(error)}; correct it, or save it again") from error


def with_open_objects(table: OpenTable) -> OpenTable:
    """Return a table whose objects of texts are further columns."""
    first = next(table.batches, None)
    fields = {} if first is None else text_fields(first.schema)
    batches = (with_text_fields(batch, fields) for batch in chain([] if first is None else [first], table.batches))
    return replace(table, columns=(*table.columns, *fields), batches=batches)


def first_cause(error: BaseException) -> str:
    """Return the first line of the reason behind an error of a library."""
    while error.__cause__ is not None:
        error = error.__cause__
    said = str(error).strip().splitlines()
    return said[0].rstrip(".") if said else type(error).__name__


def tables_in(source: Path) -> list[Path]:
    """Return the tables of a folder, in order: files of known formats, and saved datasets as one table each."""
    if format_of(source) is not None:
        return [source]
    found = sorted(path for path in source.rglob("*") if format_of(path) is not None)
    saved = {path for path in found if path.is_dir()}
    inside = {STATE_FILE, SPLITS_FILE, "dataset_info.json", "dataset_infos.json"}
    return [path for path in found if path.name not in inside and not saved & set(path.parents)]


def files_of_config(folder: Path, config: str) -> dict[str, list[Path]]:
    """Return the files of each split of a configuration that the README.md of a dataset declares, or that a folder of
    its name holds. Raises DataError for an unknown one, with the known ones."""
    import datasets

    if (folder / config).is_dir():
        return {}
    with TemporaryDirectory(prefix="limbeck-table-") as cache:
        try:
            known = datasets.get_dataset_config_names(str(folder), cache_dir=cache)
            if config in known:
                found = datasets.load_dataset_builder(str(folder), config, cache_dir=cache).config.data_files
                return {str(split): [Path(one) for one in files] for split, files in (found or {}).items()}
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            raise DataError(f"the configurations of {folder} cannot be read: {first_cause(error)}") from error
    raise DataError(
        f"data.config names {config!r}, and {folder.name} has no such configuration; known are {', '.join(known)}"
    )


def write_table(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write a table as users bring them, in Parquet; its folder is made."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
