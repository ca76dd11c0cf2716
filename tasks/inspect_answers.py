"""Stage task: error analysis of a candidate: confusion, calibration, and disagreements with its teacher."""

from __future__ import annotations

from tasks.contracts import Parcel
from tasks.recipe.slices import InspectSlice
from tasks.stage.context import Bench
from tasks.stage.decorator import stage


@stage(makes="inspection", engine="inspect", module="tasks.scoring", libraries=("numpy", "pyarrow"))
async def inspect_answers(
    bench: Bench, knobs: InspectSlice, *, card: Parcel, rows: Parcel, teacher: Parcel | None = None
) -> None:
    """Analyse the predictions of one scorecard, beside the teacher's."""
    await bench.run(knobs.model_dump(mode="json"), inputs={"card": card, "teacher": teacher, "rows": rows})
