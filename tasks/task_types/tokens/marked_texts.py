"""Texts whose entities are marked by places, as tools for annotation write them, as words with tags.

A list of entities beside each text: ``[start, end, type]`` (doccano), or objects with a start, an end and a type
(spaCy, Prodigy, doccano with relations); or a row of the text and ``{"entities": [...]}`` (spaCy 2). Places count
characters from 0, and ``end`` is the one behind the last. Words are those of a text that a user writes
(``word_spans``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.errors import DataError
from tasks.task_types.texts.json_cells import decoded_cells, is_json
from tasks.task_types.texts.tagged_lines import TAGS_COLUMN, WORDS_COLUMN, TaggedSentence
from tasks.task_types.texts.text_fields import is_list
from tasks.task_types.tokens.sentence import word_spans

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS_OF_TEXTS = ("text", "data", "sentence", "content")
COLUMNS_OF_MARKS = ("entities", "label", "labels", "spans", "ents")
"""Usual names of the columns of texts and of their entities."""
NAMES_OF_STARTS, NAMES_OF_ENDS = ("start", "start_offset", "start_char"), ("end", "end_offset", "end_char")
NAMES_OF_TYPES = ("label", "type", "entity", "tag", "label_")
VERDICT, ACCEPTED = "answer", "accept"
VERDICTS = frozenset({ACCEPTED, "reject", "ignore"})
"""The column of an annotator's verdicts on rows, and what stands in it."""
MARKED_ROWS_LOOKED_AT = 1000
"""Rows whose entities are looked at."""

Mark = tuple[int, int, str]
"""The first character of an entity, the one behind its last, and its type."""
MarkedRows = list[tuple[Any, Any]]
"""Cells of texts and of their entities."""


def with_tagged_words(table: pa.Table, file: str) -> tuple[pa.Table, list[str]]:
    """Return a table with columns of words and of their tags, and in words where they are from; as it is where no
    column marks entities by places. Raises DataError for an entity that is not in its text, or overlaps another one."""
    import pyarrow as pa

    table = without_token_objects(table)
    names = list(table.column_names)
    found = None if {WORDS_COLUMN, TAGS_COLUMN} & {*names} else marked_columns(table, names)
    if found is None:
        return table, []
    column, rows = found
    refused = refused_rows(table)
    tagged, moved = list[TaggedSentence | None](), 0
    for number, (text, cell) in enumerate(rows, start=1):
        marks = None if not isinstance(text, str) else marks_in(cell)
        if cell is not None and isinstance(text, str) and marks is None:
            raise DataError(
                f"{file}, row {number}: {str(cell)[:60]!r} in column {column!r} is no list of entities; write each as "
                f"[start, end, type], or as an object with start, end and label"
            )
        sentence, more = (None, 0) if marks is None else tagged_words(f"{file}, row {number}", str(text), marks)
        tagged.append(sentence)
        moved += more
    words = [None if one is None else one[0] for one in tagged]
    tags = [None if one is None or row in refused else one[1] for row, one in enumerate(tagged)]
    told = [f"entities of {column} as tags of words"]
    told += [f"{len(refused):,} rows without, because their {VERDICT} is not {ACCEPTED}"] if refused else []
    told += [f"{moved:,} entities begin or end inside of a word, and mark the whole word"] if moved else []
    lists = pa.list_(pa.string())
    table = table.append_column(WORDS_COLUMN, pa.array(words, lists))
    return table.append_column(TAGS_COLUMN, pa.array(tags, lists)), told


def without_token_objects(table: pa.Table) -> pa.Table:
    """Return a table without a column of words that are objects with places, as Prodigy adds them to its texts."""
    import pyarrow as pa

    kind = table.schema.field(WORDS_COLUMN).type if WORDS_COLUMN in table.column_names else pa.null()
    if not is_list(kind) or not (pa.types.is_struct(kind.value_type) or is_json(kind.value_type)):
        return table
    return table.drop_columns([WORDS_COLUMN])


def refused_rows(table: pa.Table) -> set[int]:
    """Return the places of rows that their annotator did not accept, as Prodigy keeps its verdicts."""
    verdicts = decoded_cells(table.column(VERDICT)) if VERDICT in table.column_names else []
    if not {*verdicts} <= VERDICTS:
        return set()
    return {row for row, verdict in enumerate(verdicts) if verdict != ACCEPTED}


def marked_columns(table: pa.Table, names: Sequence[str]) -> tuple[str, MarkedRows] | None:
    """Return the name of the column of entities, and texts and entities of all rows; None where there is none."""
    text = next((name for name in COLUMNS_OF_TEXTS if name in names), None)
    if text is None:
        return None
    texts = decoded_cells(table.column(text))
    others = {
        name: list(zip(texts, decoded_cells(table.column(name)), strict=True))
        for name in COLUMNS_OF_MARKS
        if name in names
    }
    pairs = [pair_in(cell) for cell in texts]
    if pairs and None not in pairs:
        others = {text: [pair for pair in pairs if pair is not None]}
    for name, rows in others.items():
        known = [cell for _, cell in rows[:MARKED_ROWS_LOOKED_AT] if cell not in (None, "")]
        if any(map(marks_in, known)) and are_marked(known):
            return name, rows
    return None


def are_marked(cells: Sequence[Any]) -> bool:
    """Tell whether nearly all cells are lists of entities: a single wrong one is an error, and no other column."""
    return sum(marks_in(cell) is not None for cell in cells) >= 0.9 * len(cells)


def pair_in(cell: Any) -> tuple[str, Any] | None:
    """Return text and entities of a row that is a list of both; None for another one."""
    if not isinstance(cell, list) or len(cell) != 2:
        return None
    text, said = map(value_of, cell)
    return (text, said.get("entities")) if isinstance(text, str) and isinstance(said, dict) else None


def value_of(cell: Any) -> Any:
    """Return the value of a cell that is JSON, as datasets gives the elements of lists of several types, and as
    delimited files have lists; any other as it is."""
    if not isinstance(cell, str) or not cell or cell[0] not in '"[{0123456789':
        return cell
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def marks_in(cell: Any) -> list[Mark] | None:
    """Return the entities of a cell, in order, each once; None for a cell that lists none."""
    elements = value_of(cell)
    if not isinstance(elements, list):
        return None
    marks = [mark_in(value_of(one)) for one in elements]
    return None if None in marks else sorted({mark for mark in marks if mark is not None})


def mark_in(given: Any) -> Mark | None:
    """Return one entity; None for anything else."""
    if isinstance(given, dict):
        parts = [
            next((given[name] for name in names if name in given), None)
            for names in (NAMES_OF_STARTS, NAMES_OF_ENDS, NAMES_OF_TYPES)
        ]
    else:
        parts = [value_of(part) for part in given] if isinstance(given, list) else []
    if len(parts) != 3:
        return None
    start, end, kind = parts
    if isinstance(start, int) and isinstance(end, int) and isinstance(kind, str) and kind:
        return start, end, kind
    return None


def tagged_words(where: str, text: str, marks: Sequence[Mark]) -> tuple[TaggedSentence, int]:
    """Return the words of a text and their tags, and the number of entities that begin or end inside of a word."""
    spans, moved, before = word_spans(text), 0, None
    tags = ["O"] * len(spans)
    for mark in marks:
        start, end, kind = mark
        if not 0 <= start < end <= len(text):
            raise DataError(
                f"{where}: the entity {list(mark)} is not in its text, which has {len(text)} characters; correct it"
            )
        if before is not None and start < before[1]:
            raise DataError(
                f"{where}: the entities {list(before)} and {list(mark)} overlap, and a word has one tag; leave one out"
            )
        own = [place for place, (first, last) in enumerate(spans) if first < end and last > start]
        free = [place for place in own if tags[place] == "O"]
        if not free:
            raise DataError(
                f"{where}: the entity {list(mark)} has no word of its own, {text[start:end]!r}; correct it, or leave "
                f"it out"
            )
        inside = text[start:end].strip()
        begins = start + text[start:end].index(inside)
        moved += (spans[own[0]][0], spans[own[-1]][1]) != (begins, begins + len(inside))
        for place in free:
            tags[place] = f"{'B' if place == free[0] else 'I'}-{kind}"
        before = mark
    return ([text[first:last] for first, last in spans], tags), moved
