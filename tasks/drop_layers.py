"""Stage tasks: the contribution of each layer, its change by fine-tuning, and models with whole layers removed."""

from __future__ import annotations

from tasks.contracts import Parcel
from tasks.recipe.slices import ContributionSlice, DropSlice
from tasks.stage.context import Bench
from tasks.stage.decorator import stage


@stage(makes="contributions", engine="contributions", threads="branch")
async def measure_contributions(bench: Bench, knobs: ContributionSlice, *, base: Parcel, rows: Parcel) -> None:
    """Measure how much each layer changes its input."""
    await bench.run(knobs.model_dump(mode="json"), inputs={"base": base, "rows": rows})


@stage(makes="similarity", engine="similarity", threads="alone")
async def measure_similarity(
    bench: Bench, knobs: ContributionSlice, *, base: Parcel, teacher: Parcel, rows: Parcel
) -> None:
    """Measure how similar each layer of the fine-tuned teacher is to the same layer of the pretrained one."""
    await bench.run(knobs.model_dump(mode="json"), inputs={"base": base, "teacher": teacher, "rows": rows})


@stage(makes="checkpoint", engine="drop", threads="branch", together=True)
async def drop_layers(
    bench: Bench,
    knobs: DropSlice,
    *,
    base: Parcel,
    rows: Parcel,
    teacher: Parcel | None = None,
    answers: Parcel | None = None,
    contributions: Parcel | None = None,
    transfer: Parcel | None = None,
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
    await bench.run(knobs.model_dump(mode="json"), inputs=inputs)
