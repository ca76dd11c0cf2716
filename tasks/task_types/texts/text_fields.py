"""Columns of objects whose fields are texts, as a column ``translation`` holds a sentence in two languages: each field
is a column, too, by the names of both with a dot between them (``translation.de``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

BETWEEN_NAMES = "."


def text_fields(schema: pa.Schema) -> dict[str, tuple[str, str]]:
    """Return the column and the field behind each further column, by its name; objects with other fields than texts
    have none."""
    import pyarrow as pa

    found = dict[str, tuple[str, str]]()
    for column in schema:
        fields = list(column.type) if pa.types.is_struct(column.type) else []
        if all(pa.types.is_string(one.type) or pa.types.is_large_string(one.type) for one in fields):
            found |= {f"{column.name}{BETWEEN_NAMES}{one.name}": (column.name, one.name) for one in fields}
    return {name: place for name, place in found.items() if name not in schema.names}


def with_text_fields(batch: pa.Table, fields: dict[str, tuple[str, str]]) -> pa.Table:
    """Return a batch with further columns; of one whose objects lack a field it is empty."""
    import pyarrow as pa

    for name, (column, field) in fields.items():
        objects = batch.column(column).combine_chunks()
        at = objects.type.get_field_index(field) if pa.types.is_struct(objects.type) else -1
        # unlike ``field``, ``flatten`` knows that a row without an object has no text
        values = objects.flatten()[at] if at >= 0 else pa.nulls(len(batch), pa.string())
        batch = batch.append_column(name, values)
    return batch
