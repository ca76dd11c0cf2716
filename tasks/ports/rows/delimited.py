"""The layout of a delimited text file (csv, tsv): its delimiter, its quoting and its header, found from all of its
lines.

A quoting character is a nuisance in text: a quote at the start of one review would make a reader swallow all rows up to
the next one. So a file counts as quoted only if that explains its lines better than the opposite does.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tasks.errors import DataError
from tasks.recipe.data import TableFormat

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""Delimiters that are looked for, and how a user calls them."""
DELIMITER_BY_ENDING = {".csv": ",", ".tsv": "\t"}
ABSENT = "\x1f"
"""A delimiter for files of one column: the unit separator, which stands in no text."""
SAMPLED_LINES = 2000
"""Lines from which the delimiter is chosen."""
WORDS_OF_A_TEXT = 5
"""Number of words from which on a cell of the first line is a text and no name of a column."""
NEARLY_EMPTY = 0.1
"""Largest share of cells with content in a column that a table does not use."""
LONGEST_CELL = 10_000_000


@dataclass(frozen=True)
class Reading:
    """One way to divide a file into rows and cells, and how well it fits."""

    delimiter: str
    quoted: bool
    rows: int
    lines: int
    """Lines that are not blank."""
    wrong: tuple[tuple[int, int], ...]
    """The line and the number of cells of every row that does not have as many cells as the first one."""
    is_proper: bool
    """Whether every quoted cell ends with a quote right before a delimiter or the end of its line."""


@dataclass(frozen=True)
class Layout:
    """The layout of one file."""

    reading: Reading
    columns: tuple[str, ...]
    has_header: bool
    looks_headless: bool
    """Whether the first line looks like a row."""

    @property
    def sentence(self) -> str:
        """The layout in words."""
        first = "" if self.has_header else ", without a header"
        if len(self.columns) == 1:
            return f"one column{first}"
        quotes = "cells may be quoted" if self.reading.quoted else "quotes are part of the text"
        return f"separated by {DELIMITERS.get(self.reading.delimiter, repr(self.reading.delimiter))}, {quotes}{first}"

    @property
    def rows(self) -> int:
        """The number of rows, without the header."""
        return self.reading.rows - self.has_header


def layout_of(path: Path, name: str, given: TableFormat) -> Layout:
    """Return the layout of a UTF-8 file called ``name``; what the recipe states of it is not looked for.

    Raises DataError for a file without rows, and for columns that cannot be told apart.
    """
    csv.field_size_limit(LONGEST_CELL)
    usual = DELIMITER_BY_ENDING.get(Path(name).suffix.lower(), ",")
    delimiter = given.delimiter or delimiter_of(path, usual)
    reading = quoting_of(path, delimiter, given.quoting)
    head = list(islice(cells_of(path, reading.delimiter, quoted=reading.quoted), 200))
    if not head:
        raise DataError(f"{name} is empty; name a file with rows")
    headless = looks_headless(head)
    columns = given.columns or named_cells(head[0])
    if len(columns) != len(head[0]):
        raise DataError(
            f"{name} has {len(head[0])} columns, and data.format.columns names {len(columns)} ({', '.join(columns)}); "
            f"name every column, in order"
        )
    repeated = [column for column, count in Counter(columns).items() if count > 1]
    if repeated and not headless:
        raise DataError(f"{name} has several columns {repeated[0]!r}; give each column a name of its own")
    # Names of a file without header are only displayed: they must differ, and be those of its first row.
    unique = columns if not repeated else tuple(f"column {number}" for number in range(1, len(columns) + 1))
    return Layout(reading, unique, not given.columns, headless)


def cells_of(path: Path, delimiter: str, *, quoted: bool) -> Iterator[list[str]]:
    """Yield the cells of every row that is not blank."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
        yield from (row for row in rows if not is_blank(row))


def is_blank(row: Sequence[str]) -> bool:
    """Tell whether a row is a blank line."""
    return len(row) == 0 or (len(row) == 1 and not row[0].strip())


def delimiter_of(path: Path, usual: str) -> str:
    """Return the delimiter by which most lines have as many cells as the first one; ``usual`` if several do, and one
    that does not occur for a file of one column."""
    fits: dict[str, tuple[float, bool, int]] = {}
    for delimiter in DELIMITERS:
        for quoted in (True, False):
            rows = list(islice(cells_of(path, delimiter, quoted=quoted), SAMPLED_LINES))
            width = len(rows[0]) if rows else 0
            if width > 1:
                share = sum(len(row) == width for row in rows) / len(rows)
                fit = (round(share, 2), delimiter == usual, width)
                fits[delimiter] = max(fit, fits.get(delimiter, fit))
    return max(fits, key=lambda delimiter: fits[delimiter]) if fits else ABSENT


def quoting_of(path: Path, delimiter: str, quoting: str) -> Reading:
    """Return the better of the two ways to read quotes, or the one that the recipe states."""
    if quoting != "auto":
        return read_with(path, delimiter, quoted=quoting == "on")
    quoted, plain = (read_with(path, delimiter, quoted=way) for way in (True, False))
    swallows = quoted.rows < plain.rows and not plain.wrong  # each line is a row by itself, and quotes join them
    if quoted.is_proper and not quoted.wrong and not swallows:
        return quoted
    if not plain.wrong or len(plain.wrong) < len(quoted.wrong) + plain.rows - quoted.rows:
        return plain
    return quoted


def read_with(path: Path, delimiter: str, *, quoted: bool) -> Reading:
    """Return how well one way of reading fits all lines of a file."""
    wrong: list[tuple[int, int]] = []
    rows, width, ended = 0, 0, 0
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
        start = 1
        for row in reader:
            if not is_blank(row):
                rows, width = rows + 1, width or len(row)
                wrong += [(start, len(row))] if len(row) != width else []
                ended += len(row) == width + 1 and not row[-1]
            start = reader.line_num + 1
    if rows > 1 and ended == rows - 1:
        wrong = []  # every row ends with a delimiter, which the header lacks
    return Reading(delimiter, quoted, rows, lines_of(path), tuple(wrong), not quoted or is_proper(path, delimiter))


def is_proper(path: Path, delimiter: str) -> bool:
    """Tell whether the quotes of a file are those of its cells, and all of them are closed."""
    with path.open(encoding="utf-8", newline="") as file:
        try:
            for _ in csv.reader(file, delimiter=delimiter, strict=True):
                pass
        except csv.Error:
            return False
    return True


def lines_of(path: Path) -> int:
    """Count the lines that are not blank."""
    with path.open(encoding="utf-8") as file:
        return sum(bool(line.strip()) for line in file)


def named_cells(first: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns in a header; a column of numbers of rows, which has no name, gets one."""
    return tuple(cell.strip() or f"column {number}" for number, cell in enumerate(first, start=1))


def looks_headless(head: Sequence[Sequence[str]]) -> bool:
    """Tell whether the first line is a row: a cell of it is empty, a number, a text, or a value of its column. The
    first column may lack a name if it numbers the rows, as pandas writes it, and any other where it is empty in nearly
    all rows, as spreadsheets write it."""
    first, rest = head[0], head[1:]
    for place, cell in enumerate(first):
        below = [row[place] for row in rest if len(row) > place]
        if place == 0 and len(first) > 1 and not cell.strip() and are_row_numbers(below):
            continue
        if place > 0 and not cell.strip() and is_nearly_empty(below):
            continue
        if not cell.strip() or is_numeral(cell) or len(cell.split()) >= WORDS_OF_A_TEXT or cell in below:
            return True
    return False


def is_nearly_empty(cells: Sequence[str]) -> bool:
    """Tell whether nearly all cells of a column are empty."""
    return sum(bool(cell.strip()) for cell in cells) <= NEARLY_EMPTY * len(cells)


def are_row_numbers(cells: Sequence[str]) -> bool:
    """Tell whether the cells of a column are different whole numbers."""
    return bool(cells) and all(cell.strip().isdecimal() for cell in cells) and len(set(cells)) == len(cells)


def is_numeral(cell: str) -> bool:
    """Tell whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
