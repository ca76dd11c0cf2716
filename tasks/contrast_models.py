"""Stage task: the difference between a candidate and a labels-only baseline of its shape, row by row and over the
seeds of both."""

from __future__ import annotations

from tasks.contracts import Artifact
from tasks.recipe.slices import ContrastSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage


@stage(makes="comparison", engine="contrast", module="tasks.scoring", libraries=("numpy", "scipy", "pyarrow"))
async def contrast_models(
    context: StageContext, knobs: ContrastSlice, *, candidate: Artifact, baseline: Artifact, rows: Artifact
) -> None:
    """Compare two scorecards on the same rows."""
    await context.run(
        knobs.model_dump(mode="json"), inputs={"candidate": candidate, "baseline": baseline, "rows": rows}
    )
