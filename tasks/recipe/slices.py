"""The knobs that a stage task receives: only the part of the recipe that determines its result."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tasks.catalog import TaskSpec, TaskTypeName
from tasks.recipe.data import Data, TableFormat, TransferText
from tasks.recipe.distillation import GeneralDistillation, Generation, Intermediate, Prediction, Signal
from tasks.recipe.judging import Exporting, Quantizing, ScoreKnobs, Speed
from tasks.recipe.knobs import Knobs, added_knob, runtime_knob
from tasks.recipe.students import Shape
from tasks.recipe.training import Pretraining, SeededTraining, TaskTraining, Teacher


class OfTask(Knobs):
    """The type of the task, of whose parts a stage counts and uses its own alone."""

    task_type: TaskTypeName = Field(description="Type of the task.")


class TransferSlice(OfTask, TransferText):
    """Knobs that determine the rows of the user's own unlabelled text."""


class RowsSlice(Data):
    """Knobs that determine the prepared rows."""

    task: TaskSpec = Field(description="Columns, labels and metrics.")


class JudgingRowsSlice(Knobs):
    """Knobs that determine the rows of a judging set, besides the names of the task's classes."""

    name: str = runtime_knob(..., "Name in the recipe, for messages.")
    task_type: TaskTypeName = Field(description="Type of its task.")
    text: str = Field(description="Column of the text.")
    pair: str | None = Field(description="Column of the second text.")
    label: str = Field(description="Column of the label.")
    group: str | None = added_knob(None, "Column of groups that are judged together.")
    drawn_by: str | None = added_knob(None, "Column of groups that intervals draw whole, where its file has one.")
    labels: tuple[str, ...] | None = Field(None, description="Names of the numbers in its label column.")
    numbered: bool = Field(False, description="Numbers in its label column have the same meaning as in train.")
    classes: tuple[tuple[str, tuple[str, ...]], ...] = Field((), description="Classes of the task for each label.")
    split: str = Field("", description="Name of the file in a folder.")
    rows: int | None = Field(None, description="Maximum number of rows.")
    format: TableFormat = Field(TableFormat(), description="Layout of its file, where it is not found by itself.")
    faulty_rows: Literal["refuse", "drop"] = Field(
        "refuse", description="Whether rows that cannot be used are refused."
    )
    leave_out: bool = Field(False, description="Exclude rows that overlap with training rows.")


class PurgeSlice(Knobs):
    """Knobs that determine the purge of train for judging sets, besides their rows."""

    names: tuple[str, ...] = Field(description="The sets, in order.")


class StreamSlice(OfTask):
    """Knobs that determine packed training rows, besides the documents."""

    size: int = Field(description="Bytes of a row, at least; the last one may have fewer.")


class JudgingScoreSlice(OfTask):
    """Knobs that determine the scores on a judging set."""

    metrics: tuple[str, ...] = Field(description="Metrics to report.")
    headline: str = Field(description="Metric used for decisions.")
    max_length: int = Field(128, description="Longest input in tokens.")
    resamples: int = Field(1000, description="Bootstrap resamples behind every interval.")
    confidence: float = Field(0.95, description="Confidence of the intervals.")
    generation: Generation | None = added_knob(None, "How models write, of a type whose models write.")
    answered_by: OfTask | None = added_knob(
        None,
        "Type of the models, where it is another one than that of the rows: they have learned nothing of such rows.",
    )


class CorpusRead(Knobs):
    """Knobs that determine which words of a corpus are used for training."""

    text: str = Field("text", description="Name of the text column.")
    most: int | None = Field(
        None, description="Maximum number of words to read: a text has no more words than tokens. Empty: all."
    )


class PretrainingOfText(Pretraining):
    """Knobs of a model that is pretrained on a corpus."""

    text: str = added_knob("text", "Name of the text column.")


class VocabularyOfCorpus(Knobs):
    """Knobs of a vocabulary that is learned from a corpus."""

    text: str = Field("text", description="Name of the text column.")
    vocabulary: int = Field(description="Number of pieces.")


class SentencesSlice(Knobs):
    """Knobs of a divided corpus."""

    text: str = Field("text", description="Name of the text column.")
    max_tokens: int = Field(description="Stop after this many tokens.")


class GeneralSlice(GeneralDistillation):
    """Knobs of general distillation for one shape."""

    shape: Shape = Field(description="The student's architecture.")
    start: str = Field("random", description="embeddings or random.")


class PatienceOf(Knobs):
    """Selection of the teacher's summary-token states that are stored with its predictions."""

    layer_map: Literal["skip", "last"] = Field("skip", description="Indices of the teacher layers.")
    layers: int = Field(ge=2, description="Layers of the student.")


class TeacherSlice(OfTask, Teacher):
    """Knobs of a teacher that is fine-tuned on the task."""


class KeptSlice(Knobs):
    """The part of a teacher's answers about a vocabulary that is stored."""

    words: int = Field(64, ge=1, description="Likeliest words of each answer.")
    temperature: float = Field(gt=0, description="Temperature of the students.")
    bits: Literal[16, 32] = Field(16, description="Bits of a stored logarithm.")


class AnswerSlice(OfTask):
    """Knobs that determine the teacher's predictions."""

    max_length: int = Field(128, description="Longest input in tokens.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic.")
    transfer_alone: bool = Field(False, description="Predict the transfer text only.")
    patience: PatienceOf | None = Field(
        None, description="Store the summary token as well, for a student with patience."
    )
    kept: KeptSlice | None = added_knob(None, "Stored part of each answer; empty: all of it.")


class MixSlice(OfTask):
    """Knobs that determine the mixture of several teachers' predictions."""

    combine: Literal["weights", "certainty"] = Field(
        "weights", description="By weights, or by each teacher's certainty of the row."
    )
    weights: tuple[float, ...] = Field(description="Weight of each teacher.")
    temperature: float = Field(
        1.0,
        gt=0,
        description="Temperature of each teacher before the mixture, the same as for students; 1 for regression.",
    )


class ThresholdSlice(OfTask):
    """Knobs that determine the thresholds of a finished model."""

    metric: str = Field(description="Metric for which they are tuned.")
    max_length: int = Field(128, description="Longest input in tokens.")


class SignalSlice(OfTask):
    """Knobs that determine the stored signals of the teacher's layers."""

    layer_map: str = Field("uniform", description="Distilled teacher layers.")
    layers: int = Field(ge=1, description="Layers of the student.")
    hidden: bool = Field(True, description="Distil hidden states.")
    attention: bool = Field(True, description="Distil attention scores.")
    max_length: int = Field(128, description="Longest input in tokens.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic.")
    signal_bits: Literal[16, 8] = Field(16, description="Bits of a stored value.")
    transfer_alone: bool = Field(False, description="Store those of the transfer text only.")


class OfStudent(OfTask):
    """Properties of a student that both phases need; shape and start are empty if an earlier stage built the
    student."""

    shape: Shape | None = Field(None, description="The student's architecture.")
    start: str | None = Field(None, description="Initialisation of the student.")
    origin: str | None = Field(None, description="Model of its initial layers.")
    transfer_alone: bool = Field(False, description="Train on the transfer text only.")


class IntermediateSlice(Intermediate, SeededTraining, OfStudent):
    """Knobs of the first phase for one student and seed."""


class PredictionSlice(Prediction, SeededTraining, OfStudent):
    """Knobs of the second phase for one student and seed."""

    signal: Signal = Field("teacher", description="Training signal: teacher, labels, or the teacher's texts.")


class ContributionSlice(OfTask):
    """Knobs that determine the contributions of layers."""

    token: Literal["cls", "mean"] = Field("cls", description="Tokens at which input and output are compared.")
    max_length: int = Field(128, description="Longest input in tokens.")
    measured_tokens: int | None = Field(None, description="Tokens that are read.")


class DropSlice(OfTask, SeededTraining, TaskTraining):
    """Knobs for one strategy, one number of layers and one seed."""

    strategy: str = Field(description="Strategy that chooses the removed layers.")
    steps: int | None = Field(None, ge=0, description="Optimizer steps; 0 trains nothing.")
    drop: int = Field(ge=1, description="Number of removed layers.")
    kept: tuple[int, ...] | None = Field(
        None, description="Remaining layers, counted from 0, if the strategy searched for them (greedy)."
    )
    signal: Literal["labels", "teacher"] = Field("labels", description="Training signal of the dropped model.")
    temperature: float = Field(2.0, gt=0, description="Temperature, with signal: teacher.")
    hard_weight: float = Field(0.1, ge=0, le=1, description="Weight of the true labels, with signal: teacher.")
    transfer_alone: bool = Field(False, description="Train on the transfer text only.")


class ScoreSlice(ScoreKnobs):
    """Knobs that determine a scorecard."""

    task: TaskSpec = Field(description="Columns, labels and metrics.")
    generation: Generation | None = added_knob(None, "How models write, of a type whose models write.")


class MetricSlice(OfTask):
    """Knobs that determine a metric beside those of the task, besides the predictions."""

    metric: str = Field(description="Its name in the recipe.")
    resamples: int = Field(1000, description="Bootstrap resamples of the rows.")
    confidence: float = Field(0.95, description="Confidence of the intervals.")


class PooledSlice(OfTask):
    """Knobs that determine the figures on both held-out splits together, besides the predictions."""

    metrics: tuple[str, ...] = Field(description="Metrics to report.")
    headline: str = Field(description="Metric of the comparison with the teacher.")
    resamples: int = Field(1000, description="Bootstrap resamples of the rows.")
    confidence: float = Field(0.95, description="Confidence of the intervals.")


class OwnMetricSlice(MetricSlice):
    """Knobs that determine a registered metric: what was stated of it, and the digest of its files."""

    name: str = Field(description="Name of its module.")
    sha256: str = Field(description="Digest of its files.")
    reads: Literal["predictions", "prediction_scores"] = Field("predictions", description="Its input.")
    lower_is_better: bool = Field(False, description="Whether it is an error.")
    folder: str = runtime_knob("", "The folder of its files on this machine.")


class TrialSlice(OfTask):
    """Knobs of the trial of a metric that is about to be registered."""

    name: str = Field(description="Name of its module.")
    sha256: str = Field(description="Digest of its files.")


class PackSlice(Knobs):
    """Knobs of the archive of a model."""

    level: int = Field(9, ge=1, le=9, description="Effort of deflate.")


class SpeedSlice(OfTask, Speed):
    """Knobs of a measurement of latency and memory."""


class TextsSlice(OfTask):
    """Knobs of a measurement of whole texts."""

    max_length: int = Field(128, description="Longest input in tokens, as in the evaluation of the model.")
    threads: int = Field(1, ge=1, description="CPU threads.")
    repeats: int = Field(30, ge=5, description="Minimum number of timed passes over the sample of texts.")
    seconds: float = Field(10.0, gt=0, description="Time limit of timed passes.")


class ExportSlice(OfTask, Exporting):
    """Knobs that determine one checkpoint's graph."""

    max_length: int = Field(128, description="Longest input in tokens, as in the evaluation of the model.")


class ProgramSlice(OfTask):
    """Knobs that determine one checkpoint's program for phones."""

    eight_bits: bool = Field(description="Weights of linear maps in eight bits.")
    metric: str = Field(description="Metric for the comparison of eight bits with fp32.")
    parity_rows: int = Field(128, ge=1, description="Real rows on which a program and its checkpoint are compared.")
    max_length: int = Field(128, description="Longest input in tokens, as in the evaluation of the model.")


class QuantizeSlice(OfTask, Quantizing):
    """Knobs that determine one graph in int8, or with weights in four bits."""

    ways: tuple[
        Literal["dynamic", "static", "dynamic-table4", "static-table4", "four-bit", "four-bit-trained"], ...
    ] = Field(("dynamic", "static"), min_length=1, description="Modes of one format; the best one is used.")
    metric: str = Field(description="Metric for the comparison of quantization methods.")
    max_length: int = Field(128, description="Longest input in tokens, as in the evaluation of the model.")
    reduce_range: bool = Field(False, description="Seven bits for weights.")
    generation: Generation | None = added_knob(None, "How models write, of a type whose models write.")


class RangesSlice(OfTask):
    """Knobs that determine one graph in int8 with the static ranges that its model states."""

    format: Literal["int8", "int8-table4"] = Field(description="Its format.")
    metric: str = Field(description="Metric for the comparison with the fp32 graph.")
    max_length: int = Field(128, description="Longest input in tokens, as in the evaluation of the model.")
    reduce_range: bool = Field(False, description="Seven bits for weights.")


class ContrastSlice(Knobs):
    """Knobs that determine the comparison of two candidates, besides their predictions."""

    metric: str = Field(description="Metric used for decisions.")
    resamples: int = Field(1000, description="Bootstrap resamples of the rows.")
    confidence: float = Field(0.95, description="Confidence of the interval.")


class InspectSlice(OfTask):
    """Knobs that determine an error analysis, besides the predictions."""

    split: str = Field(description="Split of the rows.")
    bins: int = Field(10, ge=2, description="Bins of the reliability diagram, or of the residuals.")
    examples: int = Field(6, ge=0, description="Displayed rows for each kind of disagreement.")
