"""Stage tasks: the quality, the speed and the size of a candidate."""

from __future__ import annotations

from tasks.contracts import Parcel
from tasks.recipe.judging import Speed
from tasks.recipe.slices import JudgingScoreSlice, ScoreSlice
from tasks.stage.context import Bench
from tasks.stage.decorator import stage
from tasks.stage.keys import ENGINE_LIBRARIES

SCALES = (*ENGINE_LIBRARIES, "onnxruntime", "scipy")


@stage(makes="scorecard", engine="score", module="tasks.scoring", threads="branch", libraries=SCALES)
async def score_model(
    bench: Bench,
    knobs: ScoreSlice,
    *,
    models: list[Parcel],
    teacher: Parcel,
    rows: Parcel,
    teacher_predictions: Parcel | None = None,
) -> None:
    """Score one candidate, all seeds together, beside its teacher."""
    inputs = {"teacher": teacher, "rows": rows, "teacher_predictions": teacher_predictions}
    await bench.run(knobs.model_dump(mode="json"), inputs=inputs, lists={"models": models})


@stage(makes="scorecard", engine="judge", module="tasks.scoring", threads="branch", libraries=SCALES)
async def score_judging_set(
    bench: Bench,
    knobs: JudgingScoreSlice,
    *,
    models: list[Parcel],
    teacher: Parcel,
    judging: Parcel,
    teacher_predictions: Parcel | None = None,
) -> None:
    """Score one candidate, all seeds together, beside its teacher on the rows of a judging set."""
    inputs = {"teacher": teacher, "rows": judging, "teacher_predictions": teacher_predictions}
    await bench.run(knobs.model_dump(mode="json"), inputs=inputs, lists={"models": models})


@stage(makes="speed", engine="measure", module="tasks.scoring", libraries=SCALES, hardware=True)
async def measure_speed(bench: Bench, knobs: Speed, *, model: Parcel, teacher: Parcel) -> None:
    """Time a candidate and its teacher alternately, with nothing else of this run on the machine."""
    await bench.run(knobs.model_dump(mode="json"), inputs={"model": model, "teacher": teacher})
