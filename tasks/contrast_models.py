"""Stage task: the difference between a candidate and a plain baseline of its shape, row by row and over the seeds of
both."""

from __future__ import annotations

from tasks.contracts import Parcel
from tasks.recipe.slices import ContrastSlice
from tasks.stage.context import Bench
from tasks.stage.decorator import stage


@stage(makes="comparison", engine="contrast", module="tasks.scoring", libraries=("numpy", "scipy", "pyarrow"))
async def contrast_models(
    bench: Bench, knobs: ContrastSlice, *, candidate: Parcel, baseline: Parcel, rows: Parcel
) -> None:
    """Compare two scorecards on the same rows."""
    await bench.run(knobs.model_dump(mode="json"), inputs={"candidate": candidate, "baseline": baseline, "rows": rows})
