"""The interfaces of a task type, one for each room, so that a stage's key counts only the part that it uses.

Each part of a task type is one file of its folder (``rows.py``, ``head.py``, ``answers.py``, ``view.py``, ``graph.py``)
and one entry of a dict beside this file (``READERS``, ``HEADS``, ``ANSWERS``, ``VIEWS``, ``GRAPHS``), under the type's
name in a recipe. Of a part, a stage's key counts only the fields that the stage's code reads, as long as it takes the
part from the dict itself: ``ANSWERS[knobs.task_type].decide``, also by a local name, or by an argument of our function;
a part that is kept in an object counts whole. Shape letters: N rows, B batch, C outputs of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TypedDict

from tasks.task_types.types import Column, Output

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from torch import Tensor

    from tasks.architectures import ModelConfig
    from tasks.methods.losses.means import Loss
    from tasks.metrics.definition import Metric
    from tasks.task_types.units import KeptWords, Parts, Units, Writing, WrittenPieces

# --- rows: reading and checking a user's table, for ports -------------------------------------------------------------

DerivedColumns = Callable[["pa.Table", str], tuple["pa.Table", list[str]]]


def nothing_to_note(rows: TableRows, names: Sequence[str] | None) -> Sequence[str]:
    """Return no sentence: labels are stored as they are written."""
    return ()


@dataclass(frozen=True)
class TableRows:
    """N rows of a user's table, unchecked."""

    file: str  # name of the file, for errors
    names: Mapping[str, str]
    """Names of the columns in the file, by role."""
    columns: Mapping[str, Sequence[Any]]  # values [N] by role
    declared: Sequence[str] = ()
    """Names of the classes that the file itself declares for its labels, in order."""
    is_delimited: bool = False  # whether cells have no types, so that an empty one may be an empty text


@dataclass(frozen=True)
class JudgingLabels:
    """The statements of a recipe about the labels of a judging set."""

    place: str
    """The judging set in the recipe, for errors."""
    meanings: Sequence[str] = ()
    """Classes that the numbers in its label column stand for, from 0 on; empty: as its file declares."""
    numbered: bool = False
    """Whether numbers in its label column stand for the same classes as in train."""
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of the task's classes that a label stands for, where it does not have the name of its class."""


@dataclass(frozen=True)
class ColumnChoice:
    """The columns of a table that hold its texts and labels, as ``limbeck init`` chose them."""

    text: str
    pair: str | None
    label: str
    other_labels: tuple[str, ...] = ()
    """Further columns that may hold the labels, the likeliest first."""
    is_sure: bool = True
    """Whether the label was named by the user, or has a usual name."""
    task: str | None = None
    """The type that the user named; None: the one that fits best is chosen."""
    why_text: str = "the column with the longest texts"  # the reason of the choice of the text


@dataclass(frozen=True)
class TableGuess:
    """How a table would be used for a task type, as ``limbeck init`` writes it."""

    fit: float
    """Between 0 and 1: the type that fits best is written."""
    reason: str
    metrics: tuple[str, ...]
    """Metrics that fit the labels; the first decides."""
    labels: tuple[str, ...] | None = None
    """Names of the classes in order; None for a type without classes."""


@dataclass(frozen=True)
class Reader:
    """Reads and checks the labels of a table (``rows.py``; pyarrow and numpy).

    ``names`` are those of the task's classes, in order; None for a type without classes.
    """

    columns: tuple[Column, ...]
    """Columns of a table, as in the data of the type."""
    label_type: Callable[[], pa.DataType]
    """Return the Arrow type of labels in prepared rows."""
    class_names: Callable[[TableRows], list[str] | None]
    """Return the names of the classes that training rows declare or contain; DataError for too few or too many."""
    labels: Callable[[TableRows, Sequence[str] | None], list[Any]]
    """Return labels (rows, names) as they are stored [N], None for an unlabelled row; DataError for an illegal one."""
    require_labels: Callable[[str, Sequence[Any], Sequence[str] | None], None]
    """Raise DataError if the labels of rows ("validation split", labels, names) cannot be scored."""
    label_facts: Callable[[Sequence[Any], Sequence[str] | None], Mapping[str, object]]
    """Return facts about the labels of the validation split."""
    judging_labels: Callable[[TableRows, JudgingLabels, Sequence[str] | None], tuple[list[Any], list[int] | None]]
    """Return a judging set's labels as the task's, and of each class its merged one; DataError for another label."""
    names_in_config: Callable[[ModelConfig], tuple[str, ...] | None]  # names of the classes in the config of a model
    guess: Callable[[Mapping[str, Sequence[Any]], ColumnChoice], TableGuess | None]
    """Return how a table (its columns by name) would be used with the chosen columns; None if it does not fit."""
    rows_have_classes: bool = True  # whether a row's label is a named class: every split then needs rows of each
    notes: Callable[[TableRows, Sequence[str] | None], Sequence[str]] = nothing_to_note
    """Return sentences about labels (rows, names) that are read otherwise than they are written."""
    columns_of: Callable[[Mapping[str, Sequence[Any]]], ColumnChoice | None] | None = None  # of a table for it alone
    strata: Callable[[Sequence[Any], Sequence[str] | None], Sequence[Any]] | None = None
    """Return by row (labels, names) that in whose proportions splits are drawn; None: its class."""
    classes_of: Callable[[Any], Sequence[int]] | None = None  # the classes of a stored label; None: it is the one
    renumber: Callable[[Any, Mapping[int, int]], Any] | None = None
    """Return a stored label after classes were left out, by the new numbers of the others; None: its number."""
    divided_by: str = ""  # the role of the column by which rows are divided unless a recipe names groups
    reads_apart: bool = False  # whether a model reads the texts of a pair one by one, each as a row of its own
    unlabelled: Callable[[str], str] | None = None  # returns a written text as the text of a row, if it differs
    derive: DerivedColumns | None = None  # adds columns that stand in others, and says which
    asked_without_text: Callable[[str | None], bool] | None = None  # whether, by its second text, a row needs no first
    require_pairs: Callable[[str, Sequence[str | None]], None] | None = None  # DataError if second texts tell nothing
    joined: Callable[[Sequence[str], Sequence[Any]], tuple[str, Any]] | None = None  # texts and labels as one row
    written: Callable[[str, Any], str] | None = None  # what a model learns to write of a row (text, label)
    second_alone: Callable[[Any], bool] | None = None  # whether a judging row of a label brings its second text alone


# --- head: encoding, targets and losses, for training -----------------------------------------------------------------


class TeacherLoss(Protocol):
    """Returns the loss of outputs against a teacher's, mixed with that against targets by ``hard_weight``."""

    def __call__(
        self,
        ours: Mapping[str, Tensor],
        theirs: Mapping[str, Tensor],
        targets_B: Tensor,
        *,
        temperature: float,
        hard_weight: float,
        formula: str,
    ) -> Loss:
        """Raise RecipeError for an illegal knob, ModelError or DataError for tensors that do not fit each other."""


@dataclass(frozen=True)
class Head:
    """Turns rows into targets and outputs into losses (``head.py``; torch).

    Outputs are tensors by the names in ``outputs``, rows first. Labels are as they are stored in rows, None where a row
    has none; targets are the same as one array [N].
    """

    outputs: tuple[Output, ...]
    """The outputs of a model that are its answer, and that a teacher's student learns."""
    auto_class: Callable[[], Any]
    """Returns the class of transformers that loads the models of the type."""
    configure: Callable[[Any, Sequence[str]], None]
    """Sets the outputs of a model in its config, from the names of the classes (none: the type has no classes)."""
    targets: Callable[[Sequence[Any]], np.ndarray]
    """Returns the targets [N] of labels, with a value of their own for rows that have none."""
    label_loss: Callable[[Mapping[str, Tensor], Tensor], Loss]
    """Returns the loss of outputs against targets, averaged over the labelled rows; 0 where no row has a label."""
    teacher_loss: TeacherLoss
    """Returns the loss of a student's outputs against its teacher's, and against targets."""
    mix: Callable[[Tensor, Tensor, float], Tensor]
    """Returns one output [N, C] of several teachers' [M, N, C], from their weights [M, N] and a temperature."""
    start_from_labels: Callable[[Any, Callable[[], np.ndarray]], AbstractContextManager[None]]
    """Prepares an untrained head for a training, by the targets that the function returns; a plain one afterwards."""
    units: Units | Parts | WrittenPieces | None = None
    """The units of a row that have an answer each, of which a loss has outputs and targets; None: one answer a row."""
    keep: Callable[[Mapping[str, Tensor], KeptWords], dict[str, Tensor]] | None = None
    """Returns a teacher's outputs as they are stored, as ``teacher_loss`` takes them; None: unchanged."""
    write: Callable[[Any, Tensor, Tensor, Writing], Tensor] | None = None
    """Returns the tokens that a model writes, from those that it reads and their mask; None: it writes none."""
    state_prompts: Callable[[Any, str, str], None] | None = None  # in a config, those before texts and second texts
    pair_targets: Callable[[Sequence[str], Sequence[Any]], np.ndarray] | None = None  # where texts in pairs are rows


# --- answers: predictions and their quality, for scoring and the selection of checkpoints -----------------------------


class Example(TypedDict):
    """A row on which student and teacher differ; its label and their predictions are those of the task type."""

    id: int
    label: object
    student: Mapping[str, object]
    teacher: Mapping[str, object]


class ModelComparison(TypedDict):
    """A student beside its teacher: counts of rows, and example rows by sort."""

    counts: dict[str, int]
    examples: dict[str, list[Example]]
    gap: NotRequired[float | None]  # the mean distance of their predictions, for values


@dataclass(frozen=True)
class Floor:
    """The least score of a teacher that is clearly better than guessing, unless the recipe sets one."""

    fact: str
    """The fact of a fine-tuned teacher that is compared, one of those that ``Answers.guess`` returns."""
    least: Callable[[Mapping[str, float]], float]
    """Returns the floor from the figures that ``Answers.guess`` returns."""
    description: str
    """Describes the floor for users, as in "the floor is 0.550 (the majority class plus 5 points)"."""
    interval: Callable[[float, int], tuple[float, float]]
    """Returns the 95 % interval of the compared fact, from its value and the number of rows."""


@dataclass(frozen=True)
class Answers:
    """Turns outputs into predictions, and predictions into figures (``answers.py``; numpy).

    Outputs are arrays by the names in ``TaskType.outputs``, rows first; predictions and labels have one entry a row.
    """

    outputs: tuple[Output, ...]
    """The outputs of a model that ``decide`` reads: those of ``TaskType.outputs``."""
    decide: Callable[[Mapping[str, np.ndarray]], np.ndarray]
    """Returns the predictions [N] of a model's outputs."""
    metrics: Mapping[str, Metric]
    """The metrics of ``TaskType.metrics``, by name; each maps predictions and labels to a figure."""
    dtype: str
    """The type of a prediction and of a label, by the name that numpy and Arrow share."""
    agreement: Callable[[np.ndarray, np.ndarray], float]
    """Returns by how much the predictions of two models agree; 1 if they are equal."""
    unchanged: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Tells by row whether a model that is run again predicts the same, up to rounding."""
    merge: Callable[[Mapping[str, np.ndarray], Sequence[int]], dict[str, np.ndarray]]
    """Returns outputs whose classes are merged into those of the given numbers; DataError for a type without them."""
    guess: Callable[[np.ndarray, np.ndarray], dict[str, float]]
    """Returns the facts of a fine-tuned teacher by which it is compared with guessing, from predictions and labels."""
    floor: Floor  # the least score of a teacher
    read: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
    """Returns the arrays that the error analysis needs of one model's outputs, in float64."""
    alone: Callable[[Mapping[str, np.ndarray], np.ndarray, int], Mapping[str, object]]
    """Analyses the errors of one model: from the arrays of ``read``, the labels, and a number of bins."""
    apart: Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray], np.ndarray, np.ndarray, int], ModelComparison]
    """Compares a student with its teacher, from arrays of ``read``, labels, ids, and the most examples of each sort."""
    kept: tuple[str, ...] | None = None  # names of the outputs that are stored, to be decided again; None: all
    among_all: bool = False  # whether answers depend on the other rows of a split, as ranks among all texts do


# --- view: words and figures, for pages, cards and MLflow -------------------------------------------------------------

Card = Mapping[str, object]
"""Entries of an export's card."""
Printed = dict[str, str | float | Sequence[object]]
"""One prediction, as a pipeline or ``limbeck predict`` returns it."""


@dataclass(frozen=True)
class ErrorFigure:
    """One figure of an error analysis, by its name in the analysis."""

    name: str
    title: str
    short: str
    """The title in the head of a table's column."""
    signed: bool = False


@dataclass(frozen=True)
class Code:
    """Lines of Python on a model card that ask a model about an example and print its prediction."""

    text: Callable[[bool], str]
    """Returns the example as the arguments of a tokenizer; tells whether the task's optional columns are used."""
    checkpoint: str
    """The lines for a checkpoint; they use ``model``, ``tokenizer``, and ``{text}`` for the example."""
    export: str
    """The lines for an export; they use its ``card``, ``session`` and ``tokenizer``, and ``given``, its inputs."""
    needs: tuple[str, ...] = ()  # further libraries that the lines for an export import


@dataclass(frozen=True)
class View:
    """Describes a model's predictions to people (``view.py``; no library)."""

    example: Callable[[bool], list[Any]]
    """Returns example inputs of the type's pipeline, never a user's; tells whether optional columns are used."""
    example_answer: Printed
    """An example of what the pipeline returns for one input."""
    code: Code  # how a prediction is read in Python
    analysis_title: str
    """The heading of the error analysis on a run's page."""
    figures: tuple[ErrorFigure, ...]
    """The figures of the error analysis, in the order of the page."""
    card_figure: ErrorFigure
    """The one that model cards and tables have."""
    chart: str
    """The chart of the error analysis, by its name in ``CHARTS`` of the report; empty for none."""
    chart_note: str  # how the chart is read
    matrix: str
    """The name in the error analysis of counts by true class and prediction; empty for a type without classes."""
    counted: Mapping[str, str]
    """The counts in which student and teacher are compared: words by the name of the count."""
    examples: Mapping[str, str]
    """The lists of rows on which student and teacher differ: titles by the name of the list."""
    answer: Callable[[Any, Sequence[str]], str]
    """Writes a label or a prediction of an example row, with the names of the task's classes."""
    by_class: tuple[ErrorFigure, ...] = ()  # further ones: lists of a value for each class, as in ``matrix_names``
    matrix_names: Callable[[Sequence[str]], Sequence[str]] = list
    """Returns the names of the matrix's rows and columns, from those of the task's classes."""
    in_text: Callable[[Any, Sequence[str], Sequence[str | None]], str] | None = None
    """Writes them with the passages of the row's texts that they are about, where texts may be shown; None: as
    ``answer``."""
    judged: str = ""
    """How a text was read that judged, with ``{tokens}`` and other settings in it; empty: it was truncated."""


# --- graph: exported graphs, for exports, predictions and speed -------------------------------------------------------


@dataclass(frozen=True)
class Graph:
    """Describes exported graphs and their parity (``graph.py``; numpy). Outputs are arrays by name, rows first."""

    outputs: tuple[Output, ...]
    """The outputs of the graph, in its order."""
    card: Callable[[Any], Card]
    """Returns the entries of an export's card by which its outputs are decoded, from a model's config."""
    predictions: Callable[[Mapping[str, np.ndarray], Card], list[Printed]]
    """Returns the prediction of each row as ``limbeck predict`` prints it, from outputs and what ``card`` returned."""
    equal: Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], np.ndarray]
    """Tells by row [N] whether two models answer the same, up to what rounding may change."""
    timed_inputs: Callable[[np.ndarray], dict[str, np.ndarray]]
    """Returns the inputs of one timed call, from random tokens [B, T]: all that a model of the type may take."""
    units: Units | Parts | None = None
    """The units of a row that have an answer each: an output is then an array [N] of arrays. None: one answer a row."""
    spans: Callable[[Mapping[str, np.ndarray], Card, Sequence[str]], list[Printed]] | None = None
    """Returns in place of ``predictions`` those with places in, or parts of, the user's text, of a pair the second."""
    needs_pair: bool = False  # whether a row is always two texts
    remembers: bool = False  # whether a model continues texts; its graph takes and returns what it has read
