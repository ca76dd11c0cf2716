"""Knobs cross the wire to an engine as JSON, and are there the very slice that they were."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.catalog import GLUE
from tasks.recipe.data import Augmentation, CorpusText
from tasks.recipe.distillation import Generation, Patience
from tasks.recipe.makers.search import LatencySlice
from tasks.recipe.makers.slices import (
    HeadSlice,
    JudgedShapesSlice,
    NeuronSlice,
    PruneRoundSlice,
    QuantizationSlice,
    ShapeSlice,
    StaticQuantizationSlice,
    SubNetworkSlice,
    SupernetSlice,
    TicketSlice,
    VocabularySlice,
    WeightSlice,
    WidthSlice,
)
from tasks.recipe.makers.writing import TextAnswerSlice
from tasks.recipe.methods import Matching
from tasks.recipe.slices import (
    AnswerSlice,
    ContrastSlice,
    ContributionSlice,
    DropSlice,
    ExportSlice,
    GeneralSlice,
    InspectSlice,
    IntermediateSlice,
    JudgingScoreSlice,
    MetricSlice,
    MixSlice,
    OwnMetricSlice,
    PackSlice,
    PatienceOf,
    PooledSlice,
    PredictionSlice,
    PretrainingOfText,
    ProgramSlice,
    QuantizeSlice,
    RangesSlice,
    ScoreSlice,
    SentencesSlice,
    SignalSlice,
    SpeedSlice,
    TeacherSlice,
    TextsSlice,
    ThresholdSlice,
    VocabularyOfCorpus,
)
from tasks.recipe.students import Shape
from tasks.recipe.training import Pretraining
from tests.stage_tasks import all_specs

COURSE: dict[str, Any] = {"steps": 7, "learning_rate": 1e-3, "dropout": None, "checkpoint_minutes": 0.5}
STUDENT: dict[str, Any] = {"shape": Shape(layers=2, hidden=16), "start": "random"}
FIGURES: dict[str, Any] = {"task_type": "regression", "metrics": ("pearson", "mse"), "headline": "pearson"}
SENT = [
    AnswerSlice(task_type="classification", patience=PatienceOf(layers=2), precision="bf16"),
    Augmentation(masked_lm="teacher", rows=3),
    ContrastSlice(metric="f1"),
    ContributionSlice(task_type="classification", token="mean"),
    CorpusText(source="text", max_tokens=2000),
    DropSlice(task_type="classification", **COURSE, strategy="greedy", drop=2, kept=(0, 3), signal="teacher"),
    ExportSlice(task_type="classification"),
    GeneralSlice(**COURSE, **STUDENT, method="layers", matching=Matching(hidden=0.0, layer_map="last")),
    HeadSlice(task_type="classification", keep=0.5, importance="taylor", scope="layer"),
    InspectSlice(task_type="classification", split="validation"),
    LatencySlice(task_type="classification", depths=(1, 4), between=(2,), neurons=(1.0, 0.5)),
    IntermediateSlice(task_type="classification", **COURSE, **STUDENT, method="self-attention", transfer_alone=True),
    JudgingScoreSlice(**FIGURES),
    MetricSlice(task_type="classification", metric="auroc", resamples=200),
    MixSlice(task_type="classification", weights=(1.0, 0.25), combine="certainty"),
    NeuronSlice(task_type="classification", keep=0.5, importance="taylor"),
    PackSlice(level=6),
    PooledSlice(task_type="classification", metrics=("accuracy", "f1"), headline="f1", resamples=200),
    ProgramSlice(task_type="classification", eight_bits=True, metric="accuracy"),
    PruneRoundSlice(task_type="classification", keep=0.5, importance="taylor", part="heads", round=1, rounds=2),
    WeightSlice(task_type="classification", **COURSE, keep=0.1, scores="soft-movement", begin=0.1, pressure=20),
    QuantizationSlice(task_type="classification", **COURSE, format="four-bit", bits="ternary", hidden_weight=0.5),
    QuantizationSlice(task_type="classification", **COURSE, bits=8, rounding="after-training", seven_bits=True),
    RangesSlice(task_type="classification", format="int8-table4", metric="accuracy", reduce_range=True),
    StaticQuantizationSlice(task_type="classification", **COURSE, ranges="trained", format="int8-table4"),
    TicketSlice(task_type="classification", **COURSE, left=0.25, control="random-mask", rewind_to=2),
    TextAnswerSlice(task_type="seq2seq", beams=3, length_penalty=0.6),
    Generation(beams=3, length_penalty=0.6),
    WidthSlice(task_type="classification", keep=0.5, importance="taylor"),
    OwnMetricSlice(task_type="regression", metric="own/mine", name="mine", sha256="0" * 64, lower_is_better=True),
    PredictionSlice(task_type="classification", **COURSE, patience=Patience(weight=7), formula="paper", choose_by="f1"),
    Pretraining(**COURSE, hidden=16, heads=2),
    PretrainingOfText(**COURSE, hidden=16, heads=2, text="body"),
    SentencesSlice(text="body", max_tokens=5000),
    VocabularyOfCorpus(vocabulary=300),
    QuantizeSlice(task_type="classification", metric="accuracy", ways=("static",)),
    QuantizeSlice(task_type="regression", metric="mse", ways=("dynamic-table4", "four-bit")),
    ScoreSlice(task=GLUE["stsb"], resamples=100),
    SignalSlice(task_type="classification", layers=3, attention=False),
    SpeedSlice(task_type="classification", repeats=5),
    SupernetSlice(task_type="classification", **COURSE, layers=(1, 2), width=(0.5, 1.0), hidden_weight=0.5),
    SubNetworkSlice(task_type="classification", layers=1, neurons=0.5),
    JudgedShapesSlice(task_type="classification", shapes=(ShapeSlice(layers=1), ShapeSlice(width=0.5))),
    TeacherSlice(task_type="classification", **COURSE, already_finetuned=True),
    TextsSlice(task_type="classification", repeats=5),
    ThresholdSlice(task_type="multi-label", metric="micro_f1"),
    VocabularySlice(task_type="classification", keep=8000),
]


@pytest.mark.parametrize("knobs", SENT, ids=lambda knobs: type(knobs).__name__)
def test_what_an_engine_reads_is_what_the_stage_had(knobs: Any) -> None:
    values = json.loads(json.dumps(knobs.model_dump(mode="json")))
    read = type(knobs).model_validate(values)
    assert read == knobs and read.key_values() == knobs.key_values()
    assert read.model_dump(mode="json") == values


def test_the_slice_of_every_engine_is_among_them() -> None:
    assert {spec.body.__annotations__["knobs"] for spec in all_specs() if spec.engine} == {
        type(knobs).__name__ for knobs in SENT
    }
