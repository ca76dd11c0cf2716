"""Doors: the two phases of task distillation."""

from __future__ import annotations

from tasks.contracts import Parcel
from tasks.recipe import IntermediateSlice, PredictionSlice
from tasks.stage import Bench, stage


@stage(makes="checkpoint", engine="intermediate", threads="one")
async def distill_layers(
    bench: Bench,
    knobs: IntermediateSlice,
    *,
    teacher: Parcel,
    rows: Parcel,
    start: Parcel | None = None,
    candidates: Parcel | None = None,
    transfer: Parcel | None = None,
) -> None:
    """First phase: the student's inner layers learn the teacher's."""
    inputs = {"teacher": teacher, "rows": rows, "start": start, "candidates": candidates, "transfer": transfer}
    await bench.run(knobs.model_dump(mode="json"), inputs=inputs)


@stage(makes="checkpoint", engine="prediction", threads="one")
async def distill_predictions(
    bench: Bench,
    knobs: PredictionSlice,
    *,
    teacher: Parcel,
    rows: Parcel,
    answers: Parcel | None = None,
    start: Parcel | None = None,
    candidates: Parcel | None = None,
    transfer: Parcel | None = None,
) -> None:
    """Second phase: the student learns the teacher's answers, or labels where its signal is labels."""
    inputs = {"teacher": teacher, "rows": rows, "answers": answers, "start": start, "candidates": candidates, "transfer": transfer}
    await bench.run(knobs.model_dump(mode="json"), inputs=inputs)
