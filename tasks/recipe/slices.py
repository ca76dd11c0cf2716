"""The knobs that a stage task gets: the part of the recipe that decides its result, and nothing else."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tasks.catalog import TaskSpec
from tasks.recipe.data import Data
from tasks.recipe.distillation import GeneralDistillation, Intermediate, Prediction
from tasks.recipe.judging import Exporting, Quantizing, Scoring
from tasks.recipe.knobs import Knobs, handling
from tasks.recipe.students import Shape
from tasks.recipe.training import SeededTraining, TaskTraining


class RowsSlice(Data):
    """What the preparation of rows depends on."""

    task: TaskSpec = Field(description="Columns, labels and metrics.")


class JudgingRowsSlice(Knobs):
    """What the rows of a judging set depend on, beside the names of the task's classes."""

    name: str = handling(..., "What the recipe calls it, for what is said.")
    kind: Literal["classification", "regression"] = Field(description="What its labels are.")
    text: str = Field(description="Column of the text.")
    pair: str | None = Field(description="Column of the second text.")
    label: str = Field(description="Column of the label.")
    labels: tuple[str, ...] | None = Field(None, description="What the numbers in its label column mean.")
    numbered: bool = Field(False, description="Numbers in its label column mean what they mean in train.")
    classes: tuple[tuple[str, tuple[str, ...]], ...] = Field(
        (), description="Which classes of the task a label stands for."
    )
    split: str = Field("", description="Which file of a folder.")
    rows: int | None = Field(None, description="Rows at most.")
    leave_out: bool = Field(False, description="Rows that overlap with training rows are left out.")


class PurgeSlice(Knobs):
    """What the purge of train for judging sets depends on, beside their rows."""

    names: tuple[str, ...] = Field(description="The sets, in order.")


class JudgingScoreSlice(Knobs):
    """What the scores on a judging set depend on."""

    kind: Literal["classification", "regression"] = Field(description="What answers are.")
    metrics: tuple[str, ...] = Field(description="Metrics to report.")
    headline: str = Field(description="The metric that decides.")
    max_length: int = Field(128, description="Longest input in tokens.")
    resamples: int = Field(1000, description="Bootstrap resamples behind every interval.")
    confidence: float = Field(0.95, description="Confidence of the intervals.")


class CorpusRead(Knobs):
    """What decides which of a corpus's words are learned from."""

    text: str = Field("text", description="Name of the text column.")
    most: int | None = Field(
        None, description="Words that are read at most: a text has no more words than tokens. Empty: all."
    )


class GeneralSlice(GeneralDistillation):
    """General distillation of one shape."""

    shape: Shape = Field(description="The student's architecture.")
    start: str = Field("random", description="embeddings or random.")


class PatienceOf(Knobs):
    """Which states of the teacher's summary token are kept beside its answers."""

    layer_map: Literal["skip", "last"] = Field("skip", description="Which teacher layers.")
    layers: int = Field(ge=2, description="Layers of the student.")


class AnswerSlice(Knobs):
    """What the teacher's answers depend on."""

    max_length: int = Field(128, description="Longest input in tokens.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic.")
    transfer_alone: bool = Field(False, description="Answer the transfer text only.")
    patience: PatienceOf | None = Field(None, description="Keep the summary token too, for a student with patience.")


class MixSlice(Knobs):
    """How the answers of several teachers become one."""

    combine: Literal["weights", "certainty"] = Field(
        "weights", description="By weights, or by each teacher's certainty of the row."
    )
    weights: tuple[float, ...] = Field(description="Weight of each teacher.")
    temperature: float = Field(
        1.0,
        gt=0,
        description="At which each teacher is softened before the mixture, as students soften it; 1 for numbers.",
    )


class SignalSlice(Knobs):
    """What the teacher's kept layers depend on."""

    layer_map: str = Field("uniform", description="Which teacher layers are copied.")
    layers: int = Field(ge=1, description="Layers of the student.")
    hidden: bool = Field(True, description="Hidden states are copied.")
    attention: bool = Field(True, description="Attention scores are copied.")
    max_length: int = Field(128, description="Longest input in tokens.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic.")
    signal_budget_gb: float = Field(5.0, gt=0, description="Most gigabytes that they may take.")
    transfer_alone: bool = Field(False, description="Keep those of the transfer text only.")


class OfStudent(Knobs):
    """What both phases need to know of a student; shape and start are empty where an earlier stage made it."""

    shape: Shape | None = Field(None, description="The student's architecture.")
    start: str | None = Field(None, description="How the student starts.")
    origin: str | None = Field(None, description="Which model its layers come from.")
    transfer_alone: bool = Field(False, description="Learn from the transfer text only.")


class IntermediateSlice(Intermediate, SeededTraining, OfStudent):
    """The first phase for one student and seed."""


class PredictionSlice(Prediction, SeededTraining, OfStudent):
    """The second phase for one student and seed."""

    signal: Literal["teacher", "labels"] = Field("teacher", description="What is learned from.")


class ContributionSlice(Knobs):
    """What the contribution of layers depends on."""

    token: Literal["cls", "mean"] = Field("cls", description="Where input and output are compared.")
    max_length: int = Field(128, description="Longest input in tokens.")


class DropSlice(SeededTraining, TaskTraining):
    """One strategy, one number of layers, one seed."""

    strategy: str = Field(description="Which layers go.")
    drop: int = Field(ge=1, description="How many layers go.")
    kept: tuple[int, ...] | None = Field(
        None, description="Which layers stay, counted from 0, where the strategy found them by trying (greedy)."
    )
    signal: Literal["labels", "teacher"] = Field("labels", description="What the dropped model is trained with.")
    temperature: float = Field(2.0, gt=0, description="Softening, with signal: teacher.")
    hard_weight: float = Field(0.1, ge=0, le=1, description="Weight of the true labels, with signal: teacher.")
    transfer_alone: bool = Field(False, description="Learn from the transfer text only.")


class ScoreSlice(Scoring):
    """What a scorecard depends on."""

    task: TaskSpec = Field(description="Columns, labels and metrics.")


class ExportSlice(Exporting):
    """One checkpoint's graph."""

    kind: str = Field(description="classification or regression.")
    max_length: int = Field(128, description="Longest input in tokens, as the model is judged.")


class QuantizeSlice(Quantizing):
    """One graph in int8."""

    kind: str = Field(description="classification or regression.")
    metric: str = Field(description="The metric by which ways are compared.")
    max_length: int = Field(128, description="Longest input in tokens, as the model is judged.")
    reduce_range: bool = Field(False, description="Seven bits for weights.")


class ContrastSlice(Knobs):
    """What a comparison of two candidates depends on, beside their answers."""

    metric: str = Field(description="The metric that decides.")
    resamples: int = Field(1000, description="Bootstrap resamples of the rows.")
    confidence: float = Field(0.95, description="Confidence of the interval.")


class InspectSlice(Knobs):
    """What a look into the answers depends on, beside the answers."""

    kind: Literal["classification", "regression"] = Field(description="What the answers are.")
    split: str = Field(description="Which rows.")
    bins: int = Field(10, ge=2, description="Bins of the reliability diagram, or of the residuals.")
    examples: int = Field(6, ge=0, description="Rows shown of each sort of disagreement.")
