"""Stage tasks: the contribution of each layer, its change by fine-tuning, and models with whole layers removed."""

from __future__ import annotations

from tasks.contracts import Artifact
from tasks.recipe.slices import ContributionSlice, DropSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage


@stage(makes="contributions", engine="contributions", threads="branch")
async def measure_contributions(
    context: StageContext, knobs: ContributionSlice, *, base: Artifact, rows: Artifact
) -> None:
    """Measure how much each layer changes its input."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base, "rows": rows})


@stage(makes="similarity", engine="similarity", threads="alone")
async def measure_similarity(
    context: StageContext, knobs: ContributionSlice, *, base: Artifact, teacher: Artifact, rows: Artifact
) -> None:
    """Measure how similar each layer of the fine-tuned teacher is to the same layer of the pretrained one."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base, "teacher": teacher, "rows": rows})


@stage(makes="checkpoint", engine="drop", threads="branch", distributed=True)
async def drop_layers(
    context: StageContext,
    knobs: DropSlice,
    *,
    base: Artifact,
    rows: Artifact,
    teacher: Artifact | None = None,
    answers: Artifact | None = None,
    contributions: Artifact | None = None,
    transfer: Artifact | None = None,
) -> None:
    """Remove layers by one strategy, then train the remaining model."""
    inputs = {
        "base": base,
        "rows": rows,
        "teacher": teacher,
        "answers": answers,
        "contributions": contributions,
        "transfer": transfer,
    }
    await context.run(knobs.model_dump(mode="json"), inputs=inputs)
