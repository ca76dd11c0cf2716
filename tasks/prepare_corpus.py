"""Stage tasks: general text as tokens on disk, and a base model pretrained on it if the recipe has no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tasks.contracts import Artifact
from tasks.recipe.data import CorpusText
from tasks.recipe.slices import PretrainingOfText, SentencesSlice, VocabularyOfCorpus
from tasks.recipe.training import Pretraining
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage
from tasks.stage.keys import ENGINE_LIBRARIES

TEXT_ENGINE_LIBRARIES = (*ENGINE_LIBRARIES, "datasets", "pandas")
"""Libraries of an engine and of the texts that it gets."""


@stage(makes="corpus", engine="tokenize", libraries=TEXT_ENGINE_LIBRARIES)
async def prepare_corpus(context: StageContext, knobs: CorpusText, *, source: Artifact, base: Artifact) -> None:
    """Tokenize general text with the teacher's tokenizer."""
    documents = await asyncio.to_thread(documents_of, context, source, knobs.text)
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base}, folders={"documents": documents})


@stage(makes="checkpoint", engine="pretrain", threads="alone", libraries=TEXT_ENGINE_LIBRARIES)
async def pretrain_base(context: StageContext, knobs: PretrainingOfText, *, source: Artifact) -> None:
    """Learn a vocabulary and train a small masked language model from scratch."""
    documents = await asyncio.to_thread(documents_of, context, source, knobs.text)
    await context.run(knobs.model_dump(mode="json"), folders={"documents": documents})


@stage(makes="corpus", engine="learn-vocabulary", libraries=TEXT_ENGINE_LIBRARIES)
async def learn_vocabulary(context: StageContext, knobs: VocabularyOfCorpus, *, source: Artifact) -> None:
    """Learn a vocabulary from a corpus."""
    documents = await asyncio.to_thread(documents_of, context, source, knobs.text)
    await context.run(knobs.model_dump(mode="json"), folders={"documents": documents})


@stage(makes="corpus", engine="sentences", libraries=TEXT_ENGINE_LIBRARIES)
async def divide_corpus(context: StageContext, knobs: SentencesSlice, *, source: Artifact, base: Artifact) -> None:
    """Divide the documents of a corpus into sentences, and tokenize these with the tokenizer of ``base``."""
    documents = await asyncio.to_thread(documents_of, context, source, knobs.text)
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base}, folders={"documents": documents})


@stage(makes="checkpoint", engine="pretrain-encoder", threads="alone")
async def pretrain_encoder(
    context: StageContext,
    knobs: Pretraining,
    *,
    vocabulary: Artifact,
    corpus: Artifact,
    start: Artifact | None = None,
) -> None:
    """Train a new encoder, or ``start``, to predict words and the order of segments."""
    inputs = {"vocabulary": vocabulary, "corpus": corpus, "start": start}
    await context.run(knobs.model_dump(mode="json"), inputs=inputs)


def documents_of(context: StageContext, source: Artifact, column: str) -> Path:
    """Write the source's texts as one Parquet file, the only format that the engine reads."""
    from tasks.ports.rows.document_files import write_documents
    from tasks.ports.rows.tables import read_documents

    folder = context.workspace / "documents"
    folder.mkdir(exist_ok=True)
    write_documents(folder, read_documents(context.folder(source), column))
    return folder
