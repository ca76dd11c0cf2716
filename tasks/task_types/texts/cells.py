"""Cells of a table that are no texts, and are read as texts: lists of words, and lists of messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.errors import DataError
from tasks.task_types.texts.messages import chat_in_cell
from tasks.task_types.types import Column

SPACES, NO_BREAK = re.compile(r"[ \t\r\n]+"), "\u00a0"
"""Spaces that divide words, and one that does not."""


def texts_in_cells(cells: list[Any], columns: Sequence[Column], file: str, name: str) -> list[Any]:
    """Return the cells of the text column as texts, as its type's ``columns`` read them; the file and the column's name
    are for errors. Raises DataError for a list that is not one of its type."""
    own = next((column for column in columns if column.role == "text"), None)
    if own is not None and own.is_words:
        return [words_joined(file, name, row, cell) for row, cell in enumerate(cells, start=1)]
    if own is not None and own.is_chat:
        return [chat_in_cell(file, name, row, cell) for row, cell in enumerate(cells, start=1)]
    return cells


def text_in_cell(cell: Any) -> str:
    """Return a cell of an unknown type's text column as a text: messages as JSON, words with spaces between them, and
    an empty cell as an empty text."""
    if isinstance(cell, list) and all(isinstance(one, Mapping) for one in cell):
        return json.dumps(cell, ensure_ascii=False)
    if isinstance(cell, list) and all(isinstance(one, str) for one in cell):
        return WordsOfList(joined(cell))
    return "" if cell is None else str(cell)


class WordsOfList(str):
    """A text whose words a table divides: between two of them stands a space, and signs at their ends belong to
    them."""


def words_joined(file: str, column: str, row: int, cell: Any) -> Any:
    """Return a list of words as a text; DataError for a word that is none."""
    if isinstance(cell, str):
        return SPACES.sub(" ", cell.strip())
    if not isinstance(cell, list):
        return cell
    for place, word in enumerate(cell, start=1):
        if not isinstance(word, str):
            raise DataError(f"{file}, row {row}: word {place} in column {column!r} is {word!r}; a word is a text")
    return joined(cell)


def joined(words: Sequence[str]) -> str:
    """Return words as a text; spaces within words do not divide them."""
    return " ".join(SPACES.sub(NO_BREAK, word) or NO_BREAK for word in words)
