"""Door: the user's labelled rows, checked, divided and written in one form."""

from __future__ import annotations

import asyncio

from tasks.contracts import Parcel
from tasks.recipe import RowsSlice, TransferText
from tasks.stage import Bench, stage


@stage(makes="rows", libraries=("pyarrow",))
async def prepare_rows(bench: Bench, knobs: RowsSlice, *, source: Parcel) -> None:
    """Read the source, check labels and texts, and hold rows back for selection and reporting."""
    from tasks.ports.tables import prepare_rows as prepare

    bench.facts |= await asyncio.to_thread(prepare, bench.folder(source), knobs.task, knobs, bench.output)


@stage(makes="rows", libraries=("pyarrow",))
async def prepare_transfer(bench: Bench, knobs: TransferText, *, source: Parcel, rows: Parcel) -> None:
    """Read unlabelled text of the user's own, and count which of the rows that judge stand in it."""
    from tasks.ports.tables import prepare_transfer as prepare

    bench.facts |= await asyncio.to_thread(prepare, bench.folder(source), knobs.text, knobs.pair, bench.output, bench.folder(rows))
