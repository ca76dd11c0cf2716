"""Stage tasks: the quality, the speed and the size of a candidate."""

from __future__ import annotations

from pathlib import Path

from tasks.contracts import Artifact
from tasks.recipe.makers.search import LatencySlice
from tasks.recipe.slices import (
    JudgingScoreSlice,
    MetricSlice,
    OwnMetricSlice,
    PackSlice,
    PooledSlice,
    ScoreSlice,
    SpeedSlice,
    TextsSlice,
)
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage
from tasks.stage.keys import ENGINE_LIBRARIES

SCALES = (*ENGINE_LIBRARIES, "onnxruntime", "scipy")
LATENCY_TABLES = (*ENGINE_LIBRARIES, "onnxscript", "onnx", "onnx-ir", "onnxruntime")
OF_PREDICTIONS = ("numpy", "pyarrow", "scipy")
OF_OWN_METRICS = (*OF_PREDICTIONS, "datasets", "evaluate", "scikit-learn")
"""Libraries that a registered metric may import."""


@stage(makes="scorecard", engine="score", module="tasks.scoring", threads="branch", libraries=SCALES)
async def score_model(
    context: StageContext,
    knobs: ScoreSlice,
    *,
    models: list[Artifact],
    teacher: Artifact,
    rows: Artifact,
    teacher_predictions: Artifact | None = None,
) -> None:
    """Score one candidate, all seeds together, beside its teacher."""
    inputs = {"teacher": teacher, "rows": rows, "teacher_predictions": teacher_predictions}
    await context.run(knobs.model_dump(mode="json"), inputs=inputs, lists={"models": models})


@stage(makes="scorecard", engine="judge", module="tasks.scoring", threads="branch", libraries=SCALES)
async def score_judging_set(
    context: StageContext,
    knobs: JudgingScoreSlice,
    *,
    models: list[Artifact],
    teacher: Artifact,
    judging: Artifact,
    teacher_predictions: Artifact | None = None,
) -> None:
    """Score one candidate, all seeds together, beside its teacher on the rows of a judging set."""
    inputs = {"teacher": teacher, "rows": judging, "teacher_predictions": teacher_predictions}
    await context.run(knobs.model_dump(mode="json"), inputs=inputs, lists={"models": models})


@stage(makes="metric", engine="metric", module="tasks.scoring.further", libraries=OF_PREDICTIONS)
async def score_metric(context: StageContext, knobs: MetricSlice, *, cards: list[Artifact], rows: Artifact) -> None:
    """Compute one metric beside those of the task for all models, the teacher's scorecard first."""
    await context.run(knobs.model_dump(mode="json"), inputs={"rows": rows}, lists={"cards": cards})


@stage(makes="metric", engine="pooled", module="tasks.scoring.further", libraries=OF_PREDICTIONS)
async def score_pooled(
    context: StageContext, knobs: PooledSlice, *, card: Artifact, teacher: Artifact, rows: Artifact
) -> None:
    """Score one model beside its teacher on the rows of both held-out splits together, from their scorecards."""
    await context.run(knobs.model_dump(mode="json"), inputs={"card": card, "teacher": teacher, "rows": rows})


@stage(makes="metric", engine="own-metric", module="tasks.scoring.further", libraries=OF_OWN_METRICS)
async def score_own_metric(
    context: StageContext, knobs: OwnMetricSlice, *, cards: list[Artifact], rows: Artifact
) -> None:
    """Compute one metric of the machine's owner for all models, the teacher's scorecard first."""
    folders = {"metric": Path(knobs.folder)}
    await context.run(knobs.model_dump(mode="json"), inputs={"rows": rows}, lists={"cards": cards}, folders=folders)


@stage(makes="export", engine="pack", module="tasks.scoring", libraries=("numpy", "safetensors"))
async def pack_model(context: StageContext, knobs: PackSlice, *, model: Artifact) -> None:
    """Pack a model into one archive, and count its parameters that are not 0."""
    await context.run(knobs.model_dump(mode="json"), inputs={"model": model})


@stage(makes="speed", engine="measure", module="tasks.scoring", libraries=SCALES, hardware=True)
async def measure_speed(context: StageContext, knobs: SpeedSlice, *, model: Artifact, teacher: Artifact) -> None:
    """Time a candidate and its teacher alternately, with nothing else of this run on the machine."""
    await context.run(knobs.model_dump(mode="json"), inputs={"model": model, "teacher": teacher})


@stage(makes="speed", engine="measure-texts", module="tasks.scoring", libraries=SCALES, hardware=True)
async def measure_texts(
    context: StageContext,
    knobs: TextsSlice,
    *,
    model: Artifact,
    teacher: Artifact,
    rows: Artifact,
    judging: list[Artifact],
) -> None:
    """Count the pieces of real texts and time a candidate and its teacher on them."""
    inputs = {"model": model, "teacher": teacher, "rows": rows}
    await context.run(knobs.model_dump(mode="json"), inputs=inputs, lists={"judging": judging})


@stage(makes="speed", engine="latency-table", module="tasks.search", libraries=LATENCY_TABLES, hardware=True)
async def measure_latencies(context: StageContext, knobs: LatencySlice, *, base: Artifact) -> None:
    """Time shapes of a model's architecture with random weights, with nothing else of this run on the machine."""
    await context.run(knobs.model_dump(mode="json"), inputs={"base": base})
