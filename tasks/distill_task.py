"""Stage tasks: the two phases of task distillation, and the teacher's signals for the first one."""

from __future__ import annotations

from tasks.contracts import Parcel
from tasks.recipe.slices import IntermediateSlice, PredictionSlice, SignalSlice
from tasks.stage.context import Bench
from tasks.stage.decorator import stage


@stage(makes="signals", engine="signals", threads="alone")
async def record_signals(
    bench: Bench, knobs: SignalSlice, *, teacher: Parcel, rows: Parcel, transfer: Parcel | None = None
) -> None:
    """Store the signals of the teacher's mapped layers on each row, so that no student with that map runs the teacher
    again."""
    await bench.run(knobs.model_dump(mode="json"), inputs={"teacher": teacher, "rows": rows, "transfer": transfer})


@stage(makes="checkpoint", engine="intermediate", threads="branch", together=True)
async def distill_layers(
    bench: Bench,
    knobs: IntermediateSlice,
    *,
    teacher: Parcel,
    rows: Parcel,
    start: Parcel | None = None,
    base: Parcel | None = None,
    contributions: Parcel | None = None,
    signals: Parcel | None = None,
    candidates: Parcel | None = None,
    transfer: Parcel | None = None,
) -> None:
    """First phase: the student learns from the teacher's inner layers."""
    built = {"start": start, "base": base, "contributions": contributions}
    inputs = {
        "teacher": teacher,
        "rows": rows,
        "signals": signals,
        "candidates": candidates,
        "transfer": transfer,
        **built,
    }
    await bench.run(knobs.model_dump(mode="json"), inputs=inputs)


@stage(makes="checkpoint", engine="prediction", threads="branch", together=True)
async def distill_predictions(
    bench: Bench,
    knobs: PredictionSlice,
    *,
    teacher: Parcel,
    rows: Parcel,
    answers: Parcel | None = None,
    start: Parcel | None = None,
    base: Parcel | None = None,
    contributions: Parcel | None = None,
    candidates: Parcel | None = None,
    transfer: Parcel | None = None,
) -> None:
    """Second phase: the student learns the teacher's predictions, or labels if its signal is labels."""
    built = {"start": start, "base": base, "contributions": contributions}
    inputs = {
        "teacher": teacher,
        "rows": rows,
        "answers": answers,
        "candidates": candidates,
        "transfer": transfer,
        **built,
    }
    await bench.run(knobs.model_dump(mode="json"), inputs=inputs)
