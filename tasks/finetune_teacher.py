"""Stage tasks: the pretrained model fine-tuned on the task, its predictions, and the settings of finished models."""

from __future__ import annotations

from tasks.contracts import Artifact
from tasks.recipe.distillation import Generation
from tasks.recipe.makers.writing import TextAnswerSlice
from tasks.recipe.slices import AnswerSlice, MixSlice, TeacherSlice, ThresholdSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage


@stage(makes="checkpoint", engine="finetune", threads="alone", distributed=True)
async def finetune_teacher(context: StageContext, knobs: TeacherSlice, *, rows: Artifact, base: Artifact) -> None:
    """Train the teacher with labels; keep the best checkpoint on the selection rows."""
    await context.run(knobs.model_dump(mode="json"), inputs={"rows": rows, "base": base})


@stage(makes="answers", engine="answer", threads="alone")
async def answer_rows(
    context: StageContext, knobs: AnswerSlice, *, teacher: Artifact, rows: Artifact, transfer: Artifact | None = None
) -> None:
    """Compute the teacher's predictions on every row once, for all students."""
    await context.run(knobs.model_dump(mode="json"), inputs={"teacher": teacher, "rows": rows, "transfer": transfer})


@stage(makes="answers", engine="answer-texts", threads="alone")
async def answer_texts(context: StageContext, knobs: TextAnswerSlice, *, teacher: Artifact, rows: Artifact) -> None:
    """Write the texts of the teacher's beam of every training source once, for all students that learn to write
    them."""
    await context.run(knobs.model_dump(mode="json"), inputs={"teacher": teacher, "rows": rows})


@stage(makes="answers", engine="mix")
async def mix_answers(context: StageContext, knobs: MixSlice, *, answers: list[Artifact]) -> None:
    """Mix the predictions of an ensemble's teachers."""
    await context.run(knobs.model_dump(mode="json"), lists={"answers": answers})


@stage(makes="checkpoint", engine="thresholds", threads="branch")
async def tune_thresholds(context: StageContext, knobs: ThresholdSlice, *, base: Artifact, rows: Artifact) -> None:
    """Tune the thresholds of a finished model on the selection rows, and move them into the bias of its head."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base, "rows": rows})


@stage(makes="checkpoint", engine="generation-config")
async def set_generation_config(context: StageContext, knobs: Generation, *, base: Artifact) -> None:
    """State in the folder of a finished model that writes how it is judged, so that whoever loads it writes like
    that."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base})
