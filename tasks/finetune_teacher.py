"""Stage tasks: the pretrained model fine-tuned on the task, and its predictions."""

from __future__ import annotations

from tasks.contracts import Parcel
from tasks.recipe.slices import AnswerSlice, MixSlice
from tasks.recipe.training import Teacher
from tasks.stage.context import Bench
from tasks.stage.decorator import stage


@stage(makes="checkpoint", engine="finetune", threads="alone", together=True)
async def finetune_teacher(bench: Bench, knobs: Teacher, *, rows: Parcel, base: Parcel) -> None:
    """Train the teacher with labels; keep the best checkpoint on the selection rows."""
    await bench.run(knobs.model_dump(mode="json"), inputs={"rows": rows, "base": base})


@stage(makes="answers", engine="answer", threads="alone")
async def answer_rows(
    bench: Bench, knobs: AnswerSlice, *, teacher: Parcel, rows: Parcel, transfer: Parcel | None = None
) -> None:
    """Compute the teacher's predictions on every row once, for all students."""
    await bench.run(knobs.model_dump(mode="json"), inputs={"teacher": teacher, "rows": rows, "transfer": transfer})


@stage(makes="answers", engine="mix", libraries=("torch", "safetensors", "numpy"))
async def mix_answers(bench: Bench, knobs: MixSlice, *, answers: list[Parcel]) -> None:
    """Mix the predictions of an ensemble's teachers."""
    await bench.run(knobs.model_dump(mode="json"), lists={"answers": answers})
