"""What each room asks of a task type: one interface a room, so that a stage's key counts only the part that it uses.

Each part of a task type is one file of its folder (``rows.py``, ``head.py``, ``answers.py``, ``view.py``, ``graph.py``)
and one entry of a dict beside this file (``READERS``, ``HEADS``, ``ANSWERS``, ``VIEWS``, ``GRAPHS``), under the type's
name in a recipe. Shape letters: N rows, B batch, C outputs of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.task_types.types import Column

# --- rows: reading and checking a user's table, for ports -------------------------------------------------------------


@dataclass(frozen=True)
class TableRows:
    """N rows of a user's table, unchecked."""

    file: str
    """Name of the file, for errors."""
    names: Mapping[str, str]
    """Names of the columns in the file, by role."""
    columns: Mapping[str, Sequence[Any]]
    """Values [N] by role."""
    declared: Sequence[str] = ()
    """Names of the classes that the file itself declares for its labels, in order."""


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
class TableGuess:
    """How a table would be used for a task type, as ``limbeck init`` writes it."""

    fit: float
    """Between 0 and 1: the type that fits best is written."""
    reason: str
    lines: tuple[str, ...]
    """Lines of the section ``task`` of a recipe: the columns by role, and the names of classes."""


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
    """Raise DataError if the labels of a split (its name, labels, names) cannot be scored."""
    label_facts: Callable[[Sequence[Any], Sequence[str] | None], dict[str, Any]]
    """Return facts about the labels of the validation split."""
    judging_labels: Callable[[TableRows, JudgingLabels, Sequence[str] | None], tuple[list[Any], list[int] | None]]
    """Return the labels of a judging set as the task's, and for each class the number of its merged class (None: no
    classes are merged); DataError for a label that is none of the task's."""
    names_in_config: Callable[[Mapping[str, Any]], tuple[str, ...] | None]
    """Return the names of the classes of a model, from its config."""
    guess: Callable[[Mapping[str, Sequence[Any]]], TableGuess | None]
    """Return how a table (its columns by name) would be used; None if it does not fit."""


# --- head: encoding, targets and losses, for training -----------------------------------------------------------------


@dataclass(frozen=True)
class Head:
    """Turns rows into targets and outputs into losses (``head.py``; torch)."""


# --- answers: predictions and their quality, for scoring and the selection of checkpoints -----------------------------


@dataclass(frozen=True)
class Answers:
    """Turns outputs into predictions, and predictions into figures (``answers.py``; numpy)."""


# --- view: words and figures, for pages, cards and MLflow -------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """Describes a model's predictions to people (``view.py``; no library)."""


# --- graph: exported graphs, for exports, predictions and speed -------------------------------------------------------


@dataclass(frozen=True)
class Graph:
    """Describes exported graphs and their parity (``graph.py``; numpy)."""
