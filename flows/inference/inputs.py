"""The texts to predict: one text, a table with all of its columns, or lines from a pipe."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pydantic import JsonValue

from tasks.errors import DataError
from tasks.ports.files.sources import nearest
from tasks.task_types.texts.cells import WordsOfList, text_in_cell
from tasks.task_types.texts.json_cells import decoded_cells
from tasks.task_types.texts.templates import Unrendered, columns_in, on_one_line, rendered
from tasks.task_types.types import TASK_TYPES

LIKE_A_FILE = re.compile(r"\S*[/\\]\S*|\S+\.[A-Za-z]{2,7}")
"""A word with a separator of paths or with the ending of a file: a missing file rather than a text."""
USUAL_TEXTS = "text"
"""The column of texts, unless another one is named."""
ADVICE = 'give one text as "some text", a file (csv, tsv, jsonl, parquet, txt), or - for lines from a pipe'


@dataclass(frozen=True)
class TextInputs:
    """A table of the rows to predict, with every column as it was given, and the names of its columns of texts."""

    table: Any
    text: str
    pair: str | None
    needs_text: bool = True
    """Whether a row without its first text asks nothing of the model (``asked_of``)."""
    second_is_whole: bool = False
    """Whether the lines of a second text are of one text, which a model has learned on one line (``asked_of``)."""
    needs_second: bool = False
    """Whether a row without its second text asks nothing of the model: a question without options (``asked_of``)."""
    are_words: bool = False
    """Whether the first texts are words with spaces between them, as in the table that was learned (``asked_of``)."""

    @property
    def texts(self) -> list[str]:
        """The first texts; an absent one is empty. Messages of a chat are JSON, and words stand with spaces between
        them."""
        found = as_texts(self.table, self.text)
        return [WordsOfList(text) for text in found] if self.are_words else found

    @property
    def pairs(self) -> list[str] | None:
        """The second texts, if the inputs have any; of a list each has a line, as options of a question have."""
        if not self.pair:
            return None
        is_column = self.pair in self.table.column_names
        are_lists = is_column and any(isinstance(cell, list) for cell in decoded_cells(self.table.column(self.pair)))
        texts = as_texts(self.table, f"{{{self.pair}[]}}" if are_lists else self.pair)
        return [on_one_line(text) for text in texts] if is_column and not are_lists and self.second_is_whole else texts

    @property
    def filled(self) -> list[int]:
        """The rows that have a text, or as much of one as the model needs."""
        seconds = self.pairs
        asked = self.texts if self.needs_text or seconds is None else seconds
        rows = [row for row, text in enumerate(asked) if text.strip()]
        return rows if seconds is None or not self.needs_second else [row for row in rows if seconds[row].strip()]


def as_texts(table: Any, column: str) -> list[str]:
    """Return a column as texts, or a template filled with the columns of every row; one that cannot be filled is
    empty."""
    columns = {name: decoded_cells(table.column(name)) for name in columns_in(column)}
    found, _ = rendered(column, columns, table.num_rows)
    return ["" if isinstance(value, Unrendered) else text_in_cell(value) for value in found]


def text_inputs(
    given: str | None, *, text: str = "text", pair: str | None = None, second: str | None = None, stdin: TextIO
) -> TextInputs:
    """Return the inputs that a user gave: a text with perhaps a ``second`` one, a file, ``-`` or nothing for ``stdin``.

    ``text`` and ``pair`` are the columns of a table, or templates of several. Raises DataError for a missing file or
    column, and without input.
    """
    if given is not None and os.path.isdir(given):
        raise DataError(f"{given!r} is a folder; {ADVICE}")
    if given is not None and given != "-" and not os.path.isfile(given):
        return one_text(given, second, text, pair)
    if second is not None:
        raise DataError("--second is the second text of one text; in a file, --pair names the column of second texts")
    if given is None or given == "-":
        return checked_inputs(table_of_lines(stdin, explicit=given == "-", column=text), "the input", text, pair)
    from tasks.ports.rows.tables import read_as_written

    return checked_inputs(read_as_written(Path(given)), given, text, pair)


def inputs_of_texts(texts: list[str], pairs: list[str] | None = None) -> TextInputs:
    """Return texts of a program, and perhaps their second texts, as inputs. Raises DataError if a text is missing."""
    if pairs is not None and len(pairs) != len(texts):
        raise DataError(f"there are {len(texts):,} texts and {len(pairs):,} second texts; give one for each text")
    empty = [row for row, text in enumerate(texts) if not isinstance(text, str) or not text.strip()]
    if empty or not texts:
        raise DataError(f"text {empty[0]} is empty or no text" if empty else "there is no text to predict")
    rows = [{"text": text, **({} if pairs is None else {"pair": pairs[row]})} for row, text in enumerate(texts)]
    return TextInputs(arrow_table(rows), "text", None if pairs is None else "pair")


def one_text(given: str, second: str | None, text: str, pair: str | None) -> TextInputs:
    """Return one text, or one pair of texts, as a table whose columns are those that ``text`` and ``pair`` name: a
    template puts its words around them."""
    if LIKE_A_FILE.fullmatch(given):
        raise DataError(f"the file {given!r} does not exist; {ADVICE}")
    column = only_column(text, "--text")
    if second is None:
        return checked_inputs(arrow_table([{column: given}]), "the input", text, None)
    pair = pair or "pair"
    return checked_inputs(arrow_table([{column: given, only_column(pair, "--pair"): second}]), "the input", text, pair)


def only_column(named: str, option: str) -> str:
    """Return the column that an option names, by itself or in a template; raise DataError for several: one text has
    one place."""
    columns = columns_in(named)
    if len(columns) != 1:
        raise DataError(
            f"{option} names {len(columns)} columns ({', '.join(columns)}), and one text has one place; write it as "
            f"it is, or give the columns as JSON lines by -"
        )
    return columns[0]


def table_of_lines(stdin: TextIO, *, explicit: bool, column: str) -> Any:
    """Return the lines of a pipe as a table: JSON objects with their keys, or texts; empty lines are left out.

    A terminal is read only if its user asked for it by ``-`` (``explicit``).
    """
    if not explicit and stdin.isatty():
        raise DataError(f"there is no text to predict; {ADVICE}")
    try:
        lines = [line.rstrip("\r\n") for line in stdin if line.strip()]
    except UnicodeDecodeError as error:
        raise DataError("the input is not text in UTF-8; convert it, for example by iconv") from error
    if lines and lines[0].lstrip().startswith("{"):
        return arrow_table(list(json_rows(lines)))
    column = only_column(column, "--text")
    return arrow_table([{column: line} for line in lines])


def json_rows(lines: list[str]) -> Iterator[dict[str, JsonValue]]:
    """Yield the objects of JSON Lines."""
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"line {number} of the input is not JSON ({error}), but the first line is") from error
        if not isinstance(row, dict):
            raise DataError(f"line {number} of the input is not a JSON object, but the first line is")
        yield row


def arrow_table(rows: Sequence[Mapping[str, JsonValue]]) -> Any:
    """Return rows as an Arrow table with the columns of all rows."""
    import pyarrow

    names = dict.fromkeys(name for row in rows for name in row)
    try:
        return pyarrow.table({name: [row.get(name) for row in rows] for name in names})
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise DataError(f"a column of the input has values of several types ({error}); give each one type") from error


def usual_columns(columns: Sequence[str]) -> tuple[str, str | None] | None:
    """Return the usual names of the texts and second texts of a task type, if a table has both, such as question and
    context; else that of the texts alone, such as messages."""
    named = [
        {column.role: column.usual for column in one.columns if column.usual in columns} for one in TASK_TYPES.values()
    ]
    both = ((one["text"], one["pair"]) for one in named if "text" in one and "pair" in one)
    alone = ((one["text"], None) for one in named if "text" in one)
    return next(both, None) or next(alone, None)


def checked_inputs(table: Any, source: str, text: str, pair: str | None) -> TextInputs:
    """Return the inputs in a table; raise DataError for a missing column, and if no row has a text. Without the usual
    column of texts, and without names of others, those of a task type that names two of its own are taken."""
    if (text, pair) == (USUAL_TEXTS, None) and USUAL_TEXTS not in table.column_names:
        text, pair = usual_columns(table.column_names) or (text, pair)
    for option, column in (("--text", text), ("--pair", pair)):
        for name in columns_in(column) if column is not None and table.num_columns else ():
            if name not in table.column_names:
                hint = nearest(name, table.column_names) or f"; name the column of texts with {option}"
                raise DataError(f"{source} has no column {name!r}; it has {', '.join(table.column_names)}{hint}")
    inputs = TextInputs(table, text, pair)
    if not table.num_columns or not inputs.filled:
        raise DataError(f"{source} holds no text; {ADVICE}")
    return inputs
