"""Stage task: error analysis of a candidate: confusion, calibration, and disagreements with its teacher."""

from __future__ import annotations

from tasks.contracts import Artifact
from tasks.recipe.slices import InspectSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage


@stage(makes="inspection", engine="inspect", module="tasks.scoring", libraries=("numpy", "pyarrow"))
async def inspect_answers(
    context: StageContext, knobs: InspectSlice, *, card: Artifact, rows: Artifact, teacher: Artifact | None = None
) -> None:
    """Analyse the predictions of one scorecard, beside the teacher's."""
    await context.run(knobs.model_dump(mode="json"), inputs={"card": card, "teacher": teacher, "rows": rows})
