"""Sentences of ``limbeck init`` about tables, above all those that it cannot make a recipe for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.metrics.of_label_sets import MOST_LABELS
from tasks.recipe.data import TableFormat
from tasks.task_types.interfaces import ColumnChoice
from tasks.task_types.texts.tagged_lines import are_tagged_lines
from tasks.task_types.types import NO_LABEL, task_type

LONGEST_VALUE = 40
"""Characters of a value that a message shows."""
TAGGED_LINES = 1000
"""Lines of a file of texts that are looked at for tags."""
MANY_ROWS = 20
"""Rows of which some share their label, if it is a class."""


def has_no_label(task: str | None) -> bool:
    """Tell whether rows of a type of task have no label: the texts themselves are what is learned."""
    return task is not None and NO_LABEL in task_type(task).columns


def names_in_lists(cells: Sequence[Any]) -> set[str]:
    """Return the texts of a column of lists of labels, or of one in which these are one text; none of other values."""
    lists = [cell.split("|") if isinstance(cell, str) else cell for cell in cells if cell is not None]
    flat = [one for cell in lists if isinstance(cell, list) for one in cell]
    repeated = len(set(map(str, flat))) <= len(flat) / 2
    return {*map(str, flat)} if repeated and all(isinstance(one, str) for one in flat) else set()


def nothing_to_learn(
    file: str, values: Mapping[str, list[Any]], nested: Mapping[str, list[Any]], task: str | None = None
) -> str:
    """Return a sentence about a table in which no text stands beside a label, or no text at all for a ``task`` without
    labels."""
    if task is not None and has_no_label(task):
        is_chat = any(column.is_chat for column in task_type(task).columns)
        wanted = "lists of messages, each with a role and a content" if is_chat else "texts"
        return f"{file}: no column of {', '.join([*values, *nested])} holds {wanted}, which is what {task} learns from"
    if file.removesuffix(".gz").endswith(".txt") and are_tagged_lines(values.get("text", ())[:TAGGED_LINES]):
        return f"{file} has a word and its tag in each line; call it {file.replace('.txt', '.conll')}"
    if file.removesuffix(".gz").endswith(".txt"):
        if not any(str(value or "").strip() for value in values.get("text", ())):
            return f"{file} has no line with a text; name a file with texts"
        return (
            f"{file} is read as one text a line; --task next-words or --task masked-words learns from texts alone, for "
            f"another task save it as .csv or .tsv, with a label beside each text"
        )
    for name, cells in nested.items():
        if (count := len(names_in_lists(cells))) > MOST_LABELS:
            return (
                f"{file}: the lists of {name!r} have {count} different texts, and {MOST_LABELS} different labels are "
                f"possible; join rare ones, or leave them out of the lists"
            )
    known = {name: {str(value) for value in column if value not in (None, "")} for name, column in values.items()}
    single = [f"{name!r} has {brief(next(iter(one)))!r} in every row" for name, one in known.items() if len(one) == 1]
    single += [f"{name!r} is empty" for name, one in known.items() if not one]
    single += [f"{name!r} holds lists or objects" for name in nested]
    why = f" ({'; '.join(single[:3])})" if single else ""
    return (
        f"{file} has the columns {', '.join([*values, *nested])}, and none of them is a text beside a label with "
        f"several values{why}; name them by --text and --label, texts and those to write of them by --task seq2seq "
        f"--text COLUMN --label COLUMN, texts alone by --task next-words --text COLUMN, or queries and their passages, "
        f"which need no label, by --task retrieval --text COLUMN --pair COLUMN"
    )


def brief(value: str) -> str:
    """Return a value as a message shows it."""
    return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]}…"


def names_without_header(chosen: ColumnChoice, given: TableFormat) -> list[str]:
    """Return a sentence about the names that a recipe gives to the chosen columns of a table without a header."""
    if not given.columns:
        return []
    roles = [("text", chosen.text), *([("pair", chosen.pair)] if chosen.pair else []), ("label", chosen.label)]
    return [f"data.format.columns names them: {', '.join(f'{name} is {role}' for role, name in roles)}"]


def unread_files(names: Sequence[str], judging: str) -> list[str]:
    """Return a sentence about test files, of which a run reads nothing by itself; ``judging`` has labels."""
    if not names:
        return []
    way = (
        "data.judge, a comment in the recipe, evaluates on a file of its own, too"
        if judging
        else "without labels no other rows can judge"
    )
    return [f"not read: {', '.join(names)}; the rows that decide are drawn from train, and {way}"]


def all_differ(labels: Sequence[Any]) -> bool:
    """Tell whether a label column of many rows repeats no value: its values are texts or ids, and no classes."""
    known = [str(value) for value in labels if value is not None]
    return len(known) >= MANY_ROWS and len(set(known)) == len(known)


def no_type_fits(file: str, labels: Sequence[Any], chosen: ColumnChoice, able: Sequence[str]) -> str:
    """Return a sentence about a label column that no task type of those that can read it would use."""
    count = len({str(value) for value in labels if value is not None})
    if labels and all(isinstance(value, Mapping) and sum(map(bool, value.values())) == 1 for value in labels):
        return (
            f"{file}: each row has exactly one of the columns {chosen.label} set, which is one class in several "
            f"columns; write its name into one column, or learn them as several labels by --task multi-label"
        )
    if count == 1:
        kind = "list" if isinstance(labels[0], list) else "value"
        why = f"one {kind} in all rows, which teaches nothing"
    else:
        why = f"{count:,} different values, which fit no {chosen.task or ' or '.join(able)}"
    return (
        f"{file}: the column {chosen.label!r} has {why}; name another column by --label"
        f"{', or another type by --task' if chosen.task else ''}"
    )


PLAIN_WORD = re.compile(r"[A-Za-z_][\w-]*")
RESERVED = {"yes", "no", "true", "false", "on", "off", "null", "none", "y", "n"}
"""Words that some YAML readers take for a switch or for nothing."""


def word(value: str) -> str:
    """Return a text as YAML, in quotes where it needs them."""
    plain = PLAIN_WORD.fullmatch(value) and value.isascii() and value.lower() not in RESERVED
    return value if plain else json.dumps(value, ensure_ascii=False)
