"""Cells of a table as Python values. Where a column of JSON has values of several types, such as numbers among texts or
messages with different keys, ``datasets`` keeps each of them as its JSON (the Arrow type ``arrow.json``); here they
become what their file says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def decoded_cells(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return the cells of a column. In one of texts and of numbers or truth values, each of these is a text, too; lists
    and objects beside texts stay what they are, and are refused where a text is needed."""
    cells = column.to_pylist()
    if not has_json(column.type):
        return cells
    found = [value_in(column.type, cell) for cell in cells]
    return in_texts(found) if is_json(column.type) else found


def is_json(kind: pa.DataType) -> bool:
    """Tell whether a type is that of JSON."""
    import pyarrow as pa

    return isinstance(kind, pa.JsonType)


def has_json(kind: pa.DataType) -> bool:
    """Tell whether values of a type are JSON, or have JSON inside."""
    return is_json(kind) or any(has_json(kind.field(place).type) for place in range(kind.num_fields))


def value_in(kind: pa.DataType, cell: Any) -> Any:
    """Return the value of a cell of a type."""
    if cell is None or not has_json(kind):
        return cell
    if is_json(kind):
        return json.loads(cell)
    if isinstance(cell, dict):
        return {name: value_in(kind.field(name).type, value) for name, value in cell.items()}
    return [value_in(kind.value_type, value) for value in cell]


def in_texts(cells: list[Any]) -> list[Any]:
    """Return cells as texts where some are texts, and all others are single values."""
    if not any(isinstance(cell, str) for cell in cells) or any(isinstance(cell, (list, dict)) for cell in cells):
        return cells
    return [cell if cell is None or isinstance(cell, str) else json.dumps(cell) for cell in cells]


def decoded_objects(table: pa.Table | pa.RecordBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of a table as one of objects."""
    rows = zip(*(decoded_cells(table.column(name)) for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]
