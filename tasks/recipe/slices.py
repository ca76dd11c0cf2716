"""The knobs that a stage task receives: only the part of the recipe that determines its result."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tasks.catalog import TaskSpec, TaskTypeName
from tasks.recipe.data import Data
from tasks.recipe.distillation import GeneralDistillation, Intermediate, Prediction
from tasks.recipe.judging import Exporting, Quantizing, Scoring, Speed
from tasks.recipe.knobs import Knobs, runtime_knob
from tasks.recipe.students import Shape
from tasks.recipe.training import SeededTraining, TaskTraining, Teacher


class OfTask(Knobs):
    """The type of the task, of whose parts a stage counts and uses its own alone."""

    task_type: TaskTypeName = Field(description="Type of the task.")


class RowsSlice(Data):
    """Knobs that determine the prepared rows."""

    task: TaskSpec = Field(description="Columns, labels and metrics.")


class JudgingRowsSlice(Knobs):
    """Knobs that determine the rows of a judging set, besides the names of the task's classes."""

    name: str = runtime_knob(..., "What the recipe calls it, for what is said.")
    task_type: TaskTypeName = Field(description="Type of its task.")
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
    """Knobs that determine the purge of train for judging sets, besides their rows."""

    names: tuple[str, ...] = Field(description="The sets, in order.")


class JudgingScoreSlice(OfTask):
    """Knobs that determine the scores on a judging set."""

    metrics: tuple[str, ...] = Field(description="Metrics to report.")
    headline: str = Field(description="The metric that decides.")
    max_length: int = Field(128, description="Longest input in tokens.")
    resamples: int = Field(1000, description="Bootstrap resamples behind every interval.")
    confidence: float = Field(0.95, description="Confidence of the intervals.")


class CorpusRead(Knobs):
    """Knobs that determine which words of a corpus are used for training."""

    text: str = Field("text", description="Name of the text column.")
    most: int | None = Field(
        None, description="Words that are read at most: a text has no more words than tokens. Empty: all."
    )


class GeneralSlice(GeneralDistillation):
    """Knobs of general distillation for one shape."""

    shape: Shape = Field(description="The student's architecture.")
    start: str = Field("random", description="embeddings or random.")


class PatienceOf(Knobs):
    """Selection of the teacher's summary-token states that are stored with its predictions."""

    layer_map: Literal["skip", "last"] = Field("skip", description="Which teacher layers.")
    layers: int = Field(ge=2, description="Layers of the student.")


class TeacherSlice(OfTask, Teacher):
    """Knobs of a teacher that is fine-tuned on the task."""


class AnswerSlice(OfTask):
    """Knobs that determine the teacher's predictions."""

    max_length: int = Field(128, description="Longest input in tokens.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic.")
    transfer_alone: bool = Field(False, description="Answer the transfer text only.")
    patience: PatienceOf | None = Field(None, description="Keep the summary token too, for a student with patience.")


class MixSlice(OfTask):
    """Knobs that determine the mixture of several teachers' predictions."""

    combine: Literal["weights", "certainty"] = Field(
        "weights", description="By weights, or by each teacher's certainty of the row."
    )
    weights: tuple[float, ...] = Field(description="Weight of each teacher.")
    temperature: float = Field(
        1.0,
        gt=0,
        description="At which each teacher is softened before the mixture, as students soften it; 1 for numbers.",
    )


class SignalSlice(OfTask):
    """Knobs that determine the stored signals of the teacher's layers."""

    layer_map: str = Field("uniform", description="Which teacher layers are copied.")
    layers: int = Field(ge=1, description="Layers of the student.")
    hidden: bool = Field(True, description="Hidden states are copied.")
    attention: bool = Field(True, description="Attention scores are copied.")
    max_length: int = Field(128, description="Longest input in tokens.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic.")
    signal_budget_gb: float = Field(5.0, gt=0, description="Most gigabytes that they may take.")
    transfer_alone: bool = Field(False, description="Keep those of the transfer text only.")


class OfStudent(OfTask):
    """Properties of a student that both phases need; shape and start are empty if an earlier stage built the
    student."""

    shape: Shape | None = Field(None, description="The student's architecture.")
    start: str | None = Field(None, description="How the student starts.")
    origin: str | None = Field(None, description="Which model its layers come from.")
    transfer_alone: bool = Field(False, description="Learn from the transfer text only.")


class IntermediateSlice(Intermediate, SeededTraining, OfStudent):
    """Knobs of the first phase for one student and seed."""


class PredictionSlice(Prediction, SeededTraining, OfStudent):
    """Knobs of the second phase for one student and seed."""

    signal: Literal["teacher", "labels"] = Field("teacher", description="What is learned from.")


class ContributionSlice(OfTask):
    """Knobs that determine the contributions of layers."""

    token: Literal["cls", "mean"] = Field("cls", description="Where input and output are compared.")
    max_length: int = Field(128, description="Longest input in tokens.")


class DropSlice(OfTask, SeededTraining, TaskTraining):
    """Knobs for one strategy, one number of layers and one seed."""

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
    """Knobs that determine a scorecard."""

    task: TaskSpec = Field(description="Columns, labels and metrics.")


class SpeedSlice(OfTask, Speed):
    """Knobs of a measurement of latency and memory."""


class ExportSlice(OfTask, Exporting):
    """Knobs that determine one checkpoint's graph."""

    max_length: int = Field(128, description="Longest input in tokens, as the model is judged.")


class QuantizeSlice(OfTask, Quantizing):
    """Knobs that determine one graph in int8."""

    metric: str = Field(description="The metric by which ways are compared.")
    max_length: int = Field(128, description="Longest input in tokens, as the model is judged.")
    reduce_range: bool = Field(False, description="Seven bits for weights.")


class ContrastSlice(Knobs):
    """Knobs that determine the comparison of two candidates, besides their predictions."""

    metric: str = Field(description="The metric that decides.")
    resamples: int = Field(1000, description="Bootstrap resamples of the rows.")
    confidence: float = Field(0.95, description="Confidence of the interval.")


class InspectSlice(OfTask):
    """Knobs that determine an error analysis, besides the predictions."""

    split: str = Field(description="Which rows.")
    bins: int = Field(10, ge=2, description="Bins of the reliability diagram, or of the residuals.")
    examples: int = Field(6, ge=0, description="Rows shown of each sort of disagreement.")
