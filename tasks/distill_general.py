"""Stage task: general distillation of one student shape."""

from __future__ import annotations

from tasks.contracts import Artifact
from tasks.recipe.slices import GeneralSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage


@stage(makes="checkpoint", engine="general", threads="alone", distributed=True)
async def distill_general(context: StageContext, knobs: GeneralSlice, *, base: Artifact, corpus: Artifact) -> None:
    """Copy the pretrained teacher's inner layers on general text."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base, "corpus": corpus})
