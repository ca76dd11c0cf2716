"""Stage tasks: general text as tokens on disk, and a base model pretrained on it if the recipe has no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tasks.contracts import Parcel
from tasks.recipe.data import CorpusText
from tasks.recipe.training import Pretraining
from tasks.stage.context import Bench
from tasks.stage.decorator import stage

TEXTS_AT_ONCE = 1000


@stage(makes="corpus", engine="tokenize")
async def prepare_corpus(bench: Bench, knobs: CorpusText, *, source: Parcel, base: Parcel) -> None:
    """Tokenize general text with the teacher's tokenizer."""
    documents = await asyncio.to_thread(write_documents, bench, source, knobs.text)
    await bench.run(knobs.model_dump(mode="json"), inputs={"base": base}, folders={"documents": documents})


@stage(makes="checkpoint", engine="pretrain", threads="alone")
async def pretrain_base(bench: Bench, knobs: Pretraining, *, source: Parcel) -> None:
    """Learn a vocabulary and train a small masked language model from scratch."""
    documents = await asyncio.to_thread(write_documents, bench, source, "text")
    await bench.run(knobs.model_dump(mode="json"), folders={"documents": documents})


def write_documents(bench: Bench, source: Parcel, column: str) -> Path:
    """Write the source's texts as one Parquet file, the only format that the engine reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.ports.rows.tables import read_documents

    folder = bench.workspace / "documents"
    folder.mkdir(exist_ok=True)
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(folder / "documents.parquet", schema) as writer:
        texts: list[str] = []
        for text in read_documents(bench.folder(source), column):
            texts.append(text)
            if len(texts) == TEXTS_AT_ONCE:
                writer.write_table(pa.table({"text": texts}, schema=schema))
                texts = []
        writer.write_table(pa.table({"text": texts}, schema=schema))
    return folder
