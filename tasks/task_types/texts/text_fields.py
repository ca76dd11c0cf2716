"""Columns of objects whose fields are columns, too, by the names of both with a dot between them: texts, as a column
``translation`` holds a sentence in two languages (``translation.de``), and lists of texts with their grades, as the
passages of a query have them (``passages.passage_text`` and ``passages.is_selected``), or a list of objects with a text
and a grade each (``documents.text``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

BETWEEN_NAMES = "."
GRADE_WORDS = ("label", "relevance", "relevant", "grade", "score", "selected", "rel")
"""Usual words in the names of grades."""


def text_fields(schema: pa.Schema) -> dict[str, tuple[str, str]]:
    """Return the column and the field behind each further column, by its name; objects with other fields than texts, or
    than lists of texts and of their grades, have none."""
    found = dict[str, tuple[str, str]]()
    for column in schema:
        names = fields_of(column.type)
        found |= {f"{column.name}{BETWEEN_NAMES}{name}": (column.name, name) for name in names}
    return {name: place for name, place in found.items() if name not in schema.names}


def fields_of(column: pa.DataType) -> list[str]:
    """Return the names of the fields of a column's objects that are columns."""
    import pyarrow as pa

    objects = column.value_type if is_list(column) else column
    if not pa.types.is_struct(objects):
        return []
    if not is_list(column) and all(is_text(field.type) for field in objects):
        return [field.name for field in objects]
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


def with_text_fields(batch: pa.Table, fields: dict[str, tuple[str, str]]) -> pa.Table:
    """Return a batch with further columns; of one whose objects lack a field it is empty."""
    import pyarrow as pa

    for name, (column, field) in fields.items():
        cells = batch.column(column).combine_chunks()
        listed = is_list(cells.type)
        objects = cells.flatten() if listed else cells
        at = objects.type.get_field_index(field) if pa.types.is_struct(objects.type) else -1
        if at < 0:
            values = pa.nulls(len(batch), pa.string())
        else:
            # unlike ``field``, ``flatten`` knows that a row without an object has no text
            values = objects.flatten()[at]
            values = lists_as(cells, values) if listed else values
        batch = batch.append_column(name, values)
    return batch


def lists_as(cells: pa.Array, values: pa.Array) -> pa.Array:
    """Return lists as long as those of ``cells``, with other values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pc.fill_null(pc.list_value_length(cells), 0).cast(pa.int64())
    ends = pc.cumulative_sum(sizes)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    return pa.LargeListArray.from_arrays(offsets, values, mask=cells.is_null())
