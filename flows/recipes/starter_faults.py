"""Tables of which ``limbeck init`` would make a wrong recipe, each refused in a sentence with the way out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.errors import DataError
from tasks.task_types.common_rows import is_id, known_values, mean_words, name_fit
from tasks.task_types.interfaces import ColumnChoice
from tasks.task_types.texts.templates import columns_in
from tasks.task_types.texts.text_fields import BETWEEN_NAMES

PRINTED_LIST = re.compile(r"\s*\[(?!\s*\{).*\]\s*", re.DOTALL)
"""A list in brackets, but for one of messages, which is read from its JSON."""
PRINTED_SET = re.compile(r"\{[^:]*\}|set\(\)|frozenset\(.*\)|\[\s*[\d.]+(\s+[\d.]+)+\s*\]")
WRITTEN_NUMBER = re.compile(r"\s*-?\d+\.\d+\s*")
DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
TAG = re.compile(r"O|[BIELSU]-\S+")
WORDS_OF_A_WORD = 1.2
"""Mean number of words of a column up to which each row holds one."""
USUAL_LABEL_FIT = 3
"""How much the usual name of a label sounds like one (``name_fit``)."""
MOST_UNREAD = 8
"""Columns that a note names."""
QUERY_NAMES = ("query", "question", "search", "topic")
"""Names of a column of queries whose texts are to be ranked."""


def require_usable_labels(file: str, values: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> None:
    """Raise DataError for a label column of numbers in another form, and of numbers that are none."""
    labels = values.get(chosen.label, ())
    known = known_values(labels)
    if any(DECIMAL_COMMA.fullmatch(value) for value in known if isinstance(value, str)):
        raise DataError(f"{file}: the column {chosen.label!r} has numbers with decimal commas; write them with points")
    if known and all(isinstance(value, str) and WRITTEN_NUMBER.fullmatch(value) for value in known):
        raise DataError(f"{file}: the column {chosen.label!r} has numbers that are stored as texts; store numbers")
    if known and all(isinstance(value, str) and PRINTED_SET.fullmatch(value) for value in known):
        raise DataError(
            f"{file}: the column {chosen.label!r} has sets or arrays as a program printed them, such as {known[0]}; "
            f"write lists of the labels of each row"
        )
    for row, value in enumerate(labels, start=1):
        if isinstance(value, float) and not math.isfinite(value):
            raise DataError(
                f"{file}, row {row}: the column {chosen.label!r} has {value}; give a number, or leave it empty"
            )


def require_texts(file: str, values: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> None:
    """Raise DataError for chosen texts that are lists as a program printed them, and for one word with its tag in each
    row."""
    require_lists_as_lists(file, values, [name for name in (chosen.text, chosen.pair) if name])
    tags = known_values(values.get(chosen.label, ()))
    if tags and all(isinstance(tag, str) and TAG.fullmatch(tag) for tag in tags) and {*tags} != {"O"}:
        if mean_words(values.get(chosen.text, ())) <= WORDS_OF_A_WORD:
            raise DataError(
                f"{file} has a word and its tag in each row; give each sentence a row, with a list of its words and "
                f"one of their tags, or a word with its tag in each line of a .conll file, and an empty line between "
                f"sentences"
            )


def require_lists_as_lists(file: str, values: Mapping[str, Sequence[Any]], names: Sequence[str]) -> None:
    """Raise DataError for a column, of some, that holds lists as a program printed them."""
    for name in names:
        known = known_values(values.get(name, ()))
        if known and all(isinstance(value, str) and PRINTED_LIST.fullmatch(value) for value in known):
            raise DataError(
                f"{file}: the column {name!r} has lists that are written as texts; save the table as .jsonl or "
                f".parquet, where lists are lists"
            )


def require_no_empty_label(file: str, values: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> None:
    """Raise DataError for texts that would be learned without a label beside a column that is called one, and has the
    same in every row."""
    if chosen.pair is not None or chosen.label in values:
        return
    for name, column in values.items():
        different = {str(value) for value in known_values(column)}
        if name_fit(name) == USUAL_LABEL_FIT and len(different) == 1:
            raise DataError(
                f"{file}: the column {name!r} has {different.pop()} in every row, which teaches nothing; correct it, "
                f"or learn from the texts alone by --task next-words or masked-words"
            )


def unread_columns(
    values: Mapping[str, Sequence[Any]], chosen: ColumnChoice, own: Sequence[str], reason: str
) -> list[str]:
    """Return sentences about the columns that a recipe does not read, but for ids, empty ones, and those of which the
    ``reason`` of its type says so; ``own`` are the columns of the file, and none is named where others are derived from
    them."""
    if not {*columns_in(chosen.text)} & {*own}:
        return []
    used = {one for name in (chosen.text, chosen.pair) if name for one in columns_in(name)}
    used |= {chosen.label, *chosen.label.split(", ")}
    used |= {name.split(BETWEEN_NAMES)[0] for name in own if BETWEEN_NAMES in name}  # each of its fields is a column
    names = [name for name in values if name in own and name not in used and not is_id(name)]
    names = [name for name in names if known_values(values[name])]
    names = [name for name in names if f"{name} is not read" not in reason]
    if not names:
        return []
    more = f" and {len(names) - MOST_UNREAD} more" if len(names) > MOST_UNREAD else ""
    told = [f"columns that are not read: {', '.join(names[:MOST_UNREAD])}{more}"]
    query = next((name for name in names if name.lower() in QUERY_NAMES and recurs(values[name])), None)
    if query is not None:
        told.append(f"to rank the texts of each {query} (--task ranking), grade them by whole numbers from 0 to 10")
    return told


def recurs(column: Sequence[Any]) -> bool:
    """Tell whether the texts of a column have two rows and more, on average."""
    known = [str(value) for value in known_values(column)]
    return len(known) >= 2 * len({*known}) > 0
