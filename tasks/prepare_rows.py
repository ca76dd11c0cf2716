"""Stage tasks: the user's labelled rows, checked, split and written in one format; judging sets; and overlaps of texts
with held-back rows."""

from __future__ import annotations

import asyncio
import json

from tasks.contracts import Parcel
from tasks.recipe.data import TransferText
from tasks.recipe.slices import CorpusRead, JudgingRowsSlice, PurgeSlice, RowsSlice
from tasks.report.tables.held_back import purge_lines
from tasks.stage.context import Bench
from tasks.stage.decorator import stage


@stage(makes="rows", libraries=("numpy", "pyarrow", "scipy"))
async def prepare_rows(bench: Bench, knobs: RowsSlice, *, source: Parcel) -> None:
    """Read the source, check labels and texts, and hold rows back for selection and reporting."""
    from tasks.ports.rows.prepared import prepare_rows as prepare

    bench.facts |= await asyncio.to_thread(prepare, bench.folder(source), knobs.task, knobs, bench.output)
    for line in purge_lines(bench.facts):
        bench.listen({"event": "log", "message": line})


@stage(makes="rows", libraries=("numpy", "pyarrow", "scipy"))
async def prepare_transfer(bench: Bench, knobs: TransferText, *, source: Parcel, rows: Parcel) -> None:
    """Read the user's own unlabelled text, and count the held-back rows that overlap with it."""
    from tasks.ports.rows.prepared import prepare_transfer as prepare

    bench.facts |= await asyncio.to_thread(
        prepare, bench.folder(source), knobs.text, knobs.pair, bench.output, bench.folder(rows)
    )


@stage(makes="leaks", libraries=("numpy", "pyarrow"))
async def compare_corpus(bench: Bench, knobs: CorpusRead, *, source: Parcel, rows: Parcel) -> None:
    """Count the held-back rows that overlap with general text."""
    from tasks.ports.rows.prepared import leaks_of_corpus

    found = await asyncio.to_thread(leaks_of_corpus, bench.folder(source), knobs.text, knobs.most, bench.folder(rows))
    (bench.output / "leaks.json").write_text(json.dumps(found, sort_keys=True))
    bench.facts |= found


@stage(makes="rows", libraries=("numpy", "pyarrow", "scipy"))
async def prepare_judging_set(bench: Bench, knobs: JudgingRowsSlice, *, source: Parcel, rows: Parcel) -> None:
    """Read the rows of a judging set in the format and classes of the task."""
    from tasks.ports.rows.judging_sets import prepare_judging_set as prepare

    bench.facts |= await asyncio.to_thread(prepare, bench.folder(source), knobs, bench.folder(rows), bench.output)


@stage(makes="leaks", libraries=("numpy", "pyarrow"))
async def compare_judging_set(
    bench: Bench,
    knobs: CorpusRead,
    *,
    judging: Parcel,
    rows: Parcel,
    transfer: Parcel | None = None,
    source: Parcel | None = None,
) -> None:
    """Count the rows of a judging set that overlap with training rows, transfer text and general text."""
    from tasks.ports.rows.judging_sets import compare_judging_set as compare

    transferred, general = (None if parcel is None else bench.folder(parcel) for parcel in (transfer, source))
    found = await asyncio.to_thread(
        compare, bench.folder(judging), bench.folder(rows), transferred, general, knobs.text, knobs.most
    )
    (bench.output / "leaks.json").write_text(json.dumps(found, sort_keys=True))
    bench.facts |= found


@stage(makes="rows", libraries=("numpy", "pyarrow"))
async def purge_rows(bench: Bench, knobs: PurgeSlice, *, rows: Parcel, judging: list[Parcel]) -> None:
    """Remove the training rows that overlap with judging sets."""
    from tasks.ports.rows.judging_sets import purge_train

    sets = dict(zip(knobs.names, map(bench.folder, judging), strict=True))
    bench.facts |= await asyncio.to_thread(purge_train, bench.folder(rows), sets, bench.output)
