"""The rows of a table that a starter recipe is written for: its files, its columns, and notes about its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.recipe.data import TableFormat

if TYPE_CHECKING:
    from tasks.ports.rows.table_files import OpenTable
    from tasks.task_types.interfaces import ColumnChoice

JUDGING_FILES = ("test", "eval", "val", "dev")
"""How the names of files begin that hold rows to judge by."""
LARGEST_CHECKED = 16 * 2**20
"""Bytes up to which the rows are divided at once, to find faulty ones."""
MOST_REMOVED = 0.1
"""Share of the training rows that may be removed before rows are divided by a text that recurs."""
MEAN_RECURRENCE, MOST_RECURRENCE = 1.2, 20
"""Mean numbers of rows of a text between which rows may be divided by it; a text of more is a topic, not a passage."""


@dataclass(frozen=True)
class TableSource:
    """The files of a source of rows: one file, a folder, or a downloaded data set."""

    root: Path
    train: Path
    unread: tuple[str, ...]
    """Names of files of test and further validation rows: no split of a run is read from them."""
    validation: str = ""
    """The name of the validation split where a recipe must state it; empty for a usual one."""
    judging: str = ""
    """The first of the unread files that has labels, and so can judge; empty if there is none."""

    @property
    def bytes(self) -> int:
        """The size of all files."""
        files = [self.root] if self.root.is_file() else self.root.rglob("*")
        return sum(path.stat().st_size for path in files if path.is_file())


def table_source(source: str) -> TableSource:
    """Return the files of a source: a file, a folder or a hub id."""
    from tasks.ports.files.sources import resolve_data
    from tasks.ports.rows.table_files import tables_in
    from tasks.ports.rows.tables import shard_name, split_files

    path = Path(source).expanduser()
    if path.is_file():
        return TableSource(path, path, ())
    spec = TaskSpec(name="mine")
    root = Path(resolve_data(source, None, spec).uri)
    named = first_of_several([shard_name(one) for one in tables_in(root)])
    files = split_files(root, spec.model_copy(update={"validation": named}) if named else spec)
    used = {one for found in files.values() for one in found}
    unread = tuple(one.name for one in tables_in(root) if one not in used and one.name.startswith(JUDGING_FILES))
    return TableSource(root, files["train"][0], unread, named)


def with_judging(files: TableSource, label: str | None) -> TableSource:
    """Return the files of a source with the first of the unread ones that has a label in some row; any does where rows
    need no ``label``. A large one is not read for it."""
    from tasks.ports.rows.table_files import tables_in

    paths = [path for path in tables_in(files.root) if path.name in files.unread]
    found = next((path.name for path in paths if label is None or has_labels(path, label)), "")
    return replace(files, judging=found)


def has_labels(path: Path, label: str) -> bool:
    """Tell whether a file has a label in some row; test files of competitions have none, or -1 everywhere."""
    if path.is_file() and path.stat().st_size > LARGEST_CHECKED:
        return True
    from tasks.task_types.common_rows import NO_CLASS

    try:
        values = with_joined(columns_of_table(path)[0], label)
    except DataError:
        return False
    return any(one not in (None, "", NO_CLASS) for one in values.get(label, ()))


def first_of_several(splits: Sequence[str]) -> str:
    """Return the first validation split of several, as MNLI has them (matched and mismatched), where none of them has
    the usual name; else nothing."""
    from tasks.ports.rows.tables import VALIDATION_NAMES

    for usual in VALIDATION_NAMES:
        found = sorted({name for name in splits if name.startswith(usual)})
        if found:
            return "" if usual in found or len(found) == 1 else found[0]
    return ""


def require_no_model(source: str) -> None:
    """Raise DataError for the folder of a model, which holds no rows."""
    if any(Path(source).expanduser().glob("*.safetensors")):
        raise DataError(f"{source} holds a model and no rows; name your rows, and the model by --teacher {source}")


def columns_of_table(path: Path) -> tuple[dict[str, list[Any]], OpenTable, TableFormat, list[str]]:
    """Return the columns of a table, how it was read, the layout that a recipe must state, and notes about it."""
    from tasks.ports.rows.tables import read_table, with_numbers
    from tasks.task_types.common_rows import with_flags
    from tasks.task_types.readers import READERS
    from tasks.task_types.texts.json_cells import decoded_cells

    table, opened = read_table(path)
    given, notes = TableFormat(), []
    if opened.layout is not None and opened.layout.looks_headless:
        given = TableFormat(columns=tuple(f"column_{number}" for number in range(1, len(opened.columns) + 1)))
        table, opened = read_table(path, given)
        notes = ["its first line looks like a row: if it is a header, remove data.format.columns from the recipe"]
    for reader in READERS.values():
        table, derived = reader.derive(table, path.name) if reader.derive is not None else (table, [])
        opened = replace(opened, said="; ".join((opened.said, *derived)))
    values = {name: decoded_cells(table.column(name)) for name in table.column_names}
    if not values or not len(table):
        raise DataError(f"{path.name} has no rows; name a table with rows")
    if opened.layout is not None:
        values = {name: with_numbers(column) for name, column in values.items()}
    words = {name: in_words(column, opened.classes.get(name, ())) for name, column in values.items()}
    return (
        words if given.columns else with_flags(words),
        opened,
        given,
        notes,
    )


def with_joined(columns: Mapping[str, list[Any]], label: str | None) -> dict[str, list[Any]]:
    """Return columns with one more, of objects, where the user names several columns of the label, with commas between
    them."""
    names = [name.strip() for name in (label or "").split(",")]
    if label is None or label in columns or len(names) < 2 or not all(name in columns for name in names):
        return dict(columns)
    rows = zip(*(columns[name] for name in names), strict=True)
    return {**columns, label: [dict(zip(names, row, strict=True)) for row in rows]}


def in_words(values: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Return labels, or lists of labels, by the names that their file declares."""
    flat = [in_words(value, names) if isinstance(value, list) else value for value in values]
    return [names[value] if isinstance(value, int) and 0 <= value < len(names) else value for value in flat]


def renamed(
    values: Mapping[str, list[Any]], chosen: ColumnChoice, given: TableFormat
) -> tuple[dict[str, list[Any]], ColumnChoice, TableFormat]:
    """Name the chosen columns of a table without a header by their roles."""
    if not given.columns:
        return dict(values), chosen, given
    roles = {chosen.text: "text", chosen.label: "label", **({chosen.pair: "pair"} if chosen.pair else {})}
    names = tuple(roles.get(name, name) for name in given.columns)
    columns = {roles.get(name, name): column for name, column in values.items()}
    pair = "pair" if chosen.pair else None
    return columns, replace(chosen, text="text", pair=pair, label="label"), given.model_copy(update={"columns": names})


def recurring_text(columns: Mapping[str, Sequence[Any]], *names: str) -> str:
    """Return the one of some columns whose texts recur, as paragraphs do that have several questions; empty if there is
    none, or several: dividing rows by one of them leaves texts of the other on both sides. A word or two, such as the
    aspect of a review, is no text."""
    from tasks.task_types.common_rows import WORDS_OF_A_SECOND_TEXT, mean_words

    texts = {name: [value for value in columns[name] if isinstance(value, str)] for name in names if name in columns}
    sizes = {name: len(known) / len(set(known)) for name, known in texts.items() if known}
    found = [
        name
        for name, size in sizes.items()
        if size >= MEAN_RECURRENCE and mean_words(texts[name]) >= WORDS_OF_A_SECOND_TEXT
    ]
    return found[0] if len(found) == 1 and sizes[found[0]] <= MOST_RECURRENCE else ""


def faults_in(text: str, source: TableSource) -> tuple[str, list[str], float]:
    """Return a sentence about rows that must be left out; notes about the rows of a recipe, that is other files than
    that of train, names of labels, rows that are left out or cannot be divided as they are; and the share of the
    training rows that overlap with held-out ones and are removed, 1 where rows cannot be divided one by one."""
    from flows.run.recipe_file import recipe_of_text
    from tasks.ports.rows.faulty_rows import rows_without_label
    from tasks.ports.rows.prepared import divided_rows
    from tasks.recipe.slices import RowsSlice

    recipe = recipe_of_text(text, source.train)
    if source.bytes > LARGEST_CHECKED:
        return "", [], 0.0
    knobs = RowsSlice(**{**dict(recipe.data), "faulty_rows": "drop"}, task=recipe.spec)
    try:
        _, _, facts = divided_rows(source.root, knobs)
    except DataError as error:
        return "", [f"to be corrected before a run: {error}"], 1.0
    faulty = "; ".join(facts.faulty)
    unlabelled = [f"left out: {line}" for line in rows_without_label(facts.unlabelled)]
    left_out = [f"left out (data.faulty_rows: drop): {faulty}"] if faulty else []
    purged = facts.purged
    removed = 0.0 if purged is None else 1.0 if purged.way == "overlap" else purged.rows / purged.of
    return faulty, [*facts.read[1:], *left_out, *unlabelled], removed  # train comes first, and is said already
