"""Stage task: general distillation of one student shape."""

from __future__ import annotations

from tasks.contracts import Parcel
from tasks.recipe.slices import GeneralSlice
from tasks.stage.context import Bench
from tasks.stage.decorator import stage


@stage(makes="checkpoint", engine="general", threads="alone", together=True)
async def distill_general(bench: Bench, knobs: GeneralSlice, *, base: Parcel, corpus: Parcel) -> None:
    """Copy the pretrained teacher's inner layers on general text."""
    await bench.run(knobs.model_dump(mode="json"), inputs={"base": base, "corpus": corpus})
