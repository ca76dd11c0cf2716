"""Stage tasks: the user's labelled rows, checked, split and written in one format; judging sets; and overlaps of texts
with held-back rows."""

from __future__ import annotations

import asyncio
import json

from tasks.contracts import Artifact
from tasks.recipe.slices import CorpusRead, JudgingRowsSlice, PurgeSlice, RowsSlice, StreamSlice, TransferSlice
from tasks.report.tables.held_back import left_out_lines, purge_lines
from tasks.results.facts import Leaks
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage


@stage(makes="rows", libraries=("datasets", "numpy", "pandas", "pyarrow", "scipy"))
async def prepare_rows(context: StageContext, knobs: RowsSlice, *, source: Artifact) -> None:
    """Read the source, check labels and texts, and hold rows back for selection and reporting."""
    from tasks.ports.rows.prepared import prepare_rows as prepare

    found = await asyncio.to_thread(prepare, context.folder(source), knobs, context.output)
    context.facts |= found.as_json()
    for line in [*found.read, *found.faulty, *purge_lines(found.rows, found.purged)]:
        context.listen({"event": "log", "message": line})


@stage(makes="rows", libraries=("datasets", "numpy", "pandas", "pyarrow", "scipy"))
async def prepare_transfer(context: StageContext, knobs: TransferSlice, *, source: Artifact, rows: Artifact) -> None:
    """Read the user's own unlabelled text, count the held-back rows that overlap with it, and leave such texts out if
    the recipe says so."""
    from tasks.ports.rows.prepared import prepare_transfer as prepare

    folders = context.output, context.folder(rows)
    context.facts |= await asyncio.to_thread(prepare, context.folder(source), knobs, *folders)
    for line in left_out_lines({"transfer text": Leaks.model_validate(context.facts).left_out}):
        context.listen({"event": "log", "message": line})


@stage(makes="leaks", libraries=("datasets", "numpy", "pandas", "pyarrow"))
async def compare_corpus(context: StageContext, knobs: CorpusRead, *, source: Artifact, rows: Artifact) -> None:
    """Count the held-back rows that overlap with general text."""
    from tasks.ports.rows.prepared import leakage_of_corpus

    found = await asyncio.to_thread(
        leakage_of_corpus, context.folder(source), knobs.text, knobs.most, context.folder(rows)
    )
    (context.output / "leaks.json").write_text(json.dumps(found, sort_keys=True))
    context.facts |= found


@stage(makes="rows", libraries=("datasets", "numpy", "pandas", "pyarrow", "scipy"))
async def prepare_judging_set(
    context: StageContext, knobs: JudgingRowsSlice, *, source: Artifact, rows: Artifact
) -> None:
    """Read the rows of a judging set in the format and classes of the task."""
    from tasks.ports.rows.judging_sets import prepare_judging_set as prepare

    found = await asyncio.to_thread(prepare, context.folder(source), knobs, context.folder(rows), context.output)
    context.facts |= found.as_json()


@stage(makes="leaks", libraries=("datasets", "numpy", "pandas", "pyarrow"))
async def compare_judging_set(
    context: StageContext,
    knobs: CorpusRead,
    *,
    judging: Artifact,
    rows: Artifact,
    transfer: Artifact | None = None,
    source: Artifact | None = None,
) -> None:
    """Count the rows of a judging set that overlap with training rows, transfer text and general text."""
    from tasks.ports.rows.judging_sets import compare_judging_set as compare

    transferred, general = (None if artifact is None else context.folder(artifact) for artifact in (transfer, source))
    found = await asyncio.to_thread(
        compare, context.folder(judging), context.folder(rows), transferred, general, knobs.text, knobs.most
    )
    (context.output / "leaks.json").write_text(json.dumps(found, sort_keys=True))
    context.facts |= found


@stage(makes="rows", libraries=("numpy", "pyarrow"))
async def purge_rows(context: StageContext, knobs: PurgeSlice, *, rows: Artifact, judging: list[Artifact]) -> None:
    """Remove the training rows that overlap with judging sets."""
    from tasks.ports.rows.judging_sets import purge_train

    sets = dict(zip(knobs.names, map(context.folder, judging), strict=True))
    found = await asyncio.to_thread(purge_train, context.folder(rows), sets, context.output)
    context.facts |= found.as_json()


@stage(makes="rows", libraries=("numpy", "pyarrow"))
async def pack_rows(context: StageContext, knobs: StreamSlice, *, rows: Artifact) -> None:
    """Put the training documents one behind the other, in few long rows; the other splits stay as they are."""
    from tasks.ports.rows.prepared import pack_train

    documents, streams = await asyncio.to_thread(pack_train, context.folder(rows), knobs, context.output)
    context.facts |= {"documents": documents, "streams": streams}
    context.listen({"event": "log", "message": f"{documents:,} training documents are packed in {streams:,} streams"})
