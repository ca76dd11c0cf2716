"""Stored substitutes for words; only this module writes and reads their file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FILE = "candidates.parquet"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("field", pa.string()),
        ("words", pa.list_(pa.string())),
        ("options", pa.list_(pa.list_(pa.string()))),
    ]
)

Options = tuple[list[str], list[list[str]]]
"""The words of a text, and for each word its substitutes, possibly none."""


def write_substitutes(folder: Path, found: Iterable[tuple[int, str, Options]]) -> None:
    """Write the substitutes of rows: a row's id, the side (``text`` or ``pair``), and its words with their
    substitutes."""
    rows = [(number, side, *options) for number, side, options in found]
    columns = {name: [row[at] for row in rows] for at, name in enumerate(SCHEMA.names)}
    pq.write_table(pa.table(columns, schema=SCHEMA), folder / FILE, compression="zstd")


def read_substitutes(folder: Path | None) -> dict[tuple[int, str], Options]:
    """Read substitutes by row id and side; none if there is no folder."""
    if folder is None:
        return {}
    table = pq.ParquetFile(folder / FILE).read().to_pydict()  # read_table would import pandas
    columns = (table[name] for name in SCHEMA.names)
    return {(number, side): (words, options) for number, side, words, options in zip(*columns, strict=True)}
