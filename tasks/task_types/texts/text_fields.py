"""Columns of objects whose fields are columns, too, by the names of both with a dot between them: texts, as a column
``translation`` holds a sentence in two languages (``translation.de``), and lists of texts with their grades, as the
passages of a query have them (``passages.passage_text`` and ``passages.is_selected``), or a list of objects with a text
and a grade each (``documents.text``). So are the parts of a question with its options, as ARC's own files have them
(``question.stem``, ``question.choices.text``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

FieldPath = tuple[str, ...]
"""The name of a column and of a field of its objects, and perhaps of a field of that field's objects."""
BETWEEN_NAMES = "."
OPTION_TEXT, OPTION_KEYS = "text", ("label", "key", "id", "letter")
"""The fields of an option of a question: its text, and usual names of its letter."""
GRADE_WORDS = ("label", "relevance", "relevant", "grade", "score", "selected", "rel")
"""Usual words in the names of grades."""


def text_fields(schema: pa.Schema) -> dict[str, FieldPath]:
    """Return the column and the fields behind each further column, by its name; objects with other fields than texts,
    than lists of texts and of their grades, or than options, have none."""
    paths = [(column.name, *path) for column in schema for path in fields_of(column.type)]
    found = {BETWEEN_NAMES.join(path): path for path in paths}
    return {name: path for name, path in found.items() if name not in schema.names}


def fields_of(column: pa.DataType) -> list[FieldPath]:
    """Return the fields of a column's objects that are columns."""
    import pyarrow as pa

    objects = column.value_type if is_list(column) else column
    if not pa.types.is_struct(objects):
        return []
    if is_list(column) and are_options(objects):
        return [(field.name,) for field in objects]
    if is_list(column):
        return [(name,) for name in graded_fields(column, objects)]
    options = {field.name: is_list(field.type) and are_options(field.type.value_type) for field in objects}
    if any(options.values()):
        own = [[(field.name, *path) for path in fields_of(field.type)] for field in objects if options[field.name]]
        return [*((field.name,) for field in objects if is_text(field.type)), *chain.from_iterable(own)]
    if all(is_text(field.type) for field in objects):
        return [(field.name,) for field in objects]
    return [(name,) for name in graded_fields(column, objects)]


def are_options(kind: pa.DataType) -> bool:
    """Tell whether a type is that of an option: an object of its text and its key."""
    import pyarrow as pa

    if not pa.types.is_struct(kind) or not all(is_text(field.type) for field in kind):
        return False
    names = {field.name for field in kind}
    return OPTION_TEXT in names and len(names) == 2 and bool(names & {*OPTION_KEYS})


def graded_fields(column: pa.DataType, objects: pa.DataType) -> list[str]:
    """Return the names of fields of texts and of their grades; none without both."""
    # each field is a list: by itself, or as the objects are in one
    each = {field.name: field.type for field in objects}
    if not is_list(column):
        each = {name: kind.value_type for name, kind in each.items() if is_list(kind)}
    texts = [name for name, kind in each.items() if is_text(kind)]
    grades = [name for name, kind in each.items() if is_count(kind) and name_has(name, GRADE_WORDS)]
    return [*texts, *grades] if texts and grades else []


def name_has(name: str, words: Sequence[str]) -> bool:
    """Tell whether a column's name contains one of some words."""
    return any(word in name.lower() for word in words)


def is_list(kind: pa.DataType) -> bool:
    """Tell whether a type is one of lists."""
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type is one of texts."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_count(kind: pa.DataType) -> bool:
    """Tell whether a type may hold grades."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def with_text_fields(batch: pa.Table, fields: dict[str, FieldPath]) -> pa.Table:
    """Return a batch with further columns; of one whose objects lack a field it is empty."""
    import pyarrow as pa

    for name, (column, *path) in fields.items():
        values = values_at(batch.column(column).combine_chunks(), path)
        batch = batch.append_column(name, pa.nulls(len(batch), pa.string()) if values is None else values)
    return batch


def values_at(cells: pa.Array, path: Sequence[str]) -> pa.Array | None:
    """Return a field of objects, or of the objects in lists; None where they have no such field."""
    import pyarrow as pa

    if not path:
        return cells
    listed = is_list(cells.type)
    objects = cells.flatten() if listed else cells
    at = objects.type.get_field_index(path[0]) if pa.types.is_struct(objects.type) else -1
    if at < 0:
        return None
    # unlike ``field``, ``flatten`` knows that a row without an object has no text
    values = values_at(objects.flatten()[at], path[1:])
    return lists_as(cells, values) if listed and values is not None else values


def lists_as(cells: pa.Array, values: pa.Array) -> pa.Array:
    """Return lists as long as those of ``cells``, with other values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pc.fill_null(pc.list_value_length(cells), 0).cast(pa.int64())
    ends = pc.cumulative_sum(sizes)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    return pa.LargeListArray.from_arrays(offsets, values, mask=cells.is_null())
