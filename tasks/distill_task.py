"""Stage tasks: the two phases of task distillation, and the teacher's signals for the first one."""

from __future__ import annotations

from tasks.contracts import Artifact
from tasks.recipe.slices import IntermediateSlice, PredictionSlice, SignalSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage


@stage(makes="signals", engine="signals", threads="alone")
async def record_signals(
    context: StageContext, knobs: SignalSlice, *, teacher: Artifact, rows: Artifact, transfer: Artifact | None = None
) -> None:
    """Store the signals of the teacher's mapped layers on each row, so that no student with that map runs the teacher
    again."""
    await context.run(knobs.model_dump(mode="json"), inputs={"teacher": teacher, "rows": rows, "transfer": transfer})


@stage(makes="checkpoint", engine="intermediate", threads="branch", distributed=True)
async def distill_layers(
    context: StageContext,
    knobs: IntermediateSlice,
    *,
    teacher: Artifact,
    rows: Artifact,
    start: Artifact | None = None,
    base: Artifact | None = None,
    contributions: Artifact | None = None,
    signals: Artifact | None = None,
    candidates: Artifact | None = None,
    transfer: Artifact | None = None,
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
    await context.run(knobs.model_dump(mode="json"), inputs=inputs)


@stage(makes="checkpoint", engine="prediction", threads="branch", distributed=True)
async def distill_predictions(
    context: StageContext,
    knobs: PredictionSlice,
    *,
    teacher: Artifact,
    rows: Artifact,
    answers: Artifact | None = None,
    start: Artifact | None = None,
    base: Artifact | None = None,
    contributions: Artifact | None = None,
    candidates: Artifact | None = None,
    transfer: Artifact | None = None,
    texts: Artifact | None = None,
) -> None:
    """Second phase: the student learns the teacher's predictions, its texts, or labels, by its signal."""
    built = {"start": start, "base": base, "contributions": contributions}
    inputs = {
        "teacher": teacher,
        "rows": rows,
        "answers": answers,
        "texts": texts,
        "candidates": candidates,
        "transfer": transfer,
        **built,
    }
    await context.run(knobs.model_dump(mode="json"), inputs=inputs)
