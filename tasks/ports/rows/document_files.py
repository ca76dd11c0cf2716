"""Documents as the engine reads them, one Parquet file of texts: its only writer and its only reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

DOCUMENTS = "documents.parquet"
AT_ONCE = 1000
"""Documents that are written at once, which bounds memory."""


def write_documents(folder: Path, texts: Iterable[str]) -> None:
    """Write texts as they come, without holding them in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(folder / DOCUMENTS, schema) as writer:
        part: list[str] = []
        for text in texts:
            part.append(text)
            if len(part) == AT_ONCE:
                writer.write_table(pa.table({"text": part}, schema=schema))
                part = []
        writer.write_table(pa.table({"text": part}, schema=schema))


def document_batches(folder: Path, size: int) -> Iterator[list[str]]:
    """Yield texts, at most ``size`` at once."""
    import pyarrow.parquet as pq

    for part in pq.ParquetFile(folder / DOCUMENTS).iter_batches(size, columns=["text"]):
        yield part.column("text").to_pylist()
