"""What each room asks of a task type: one interface a room, so that a stage's key counts only the part that it uses.

Each part of a task type is one file of its folder (``rows.py``, ``head.py``, ``answers.py``, ``view.py``, ``graph.py``)
and one entry of a dict beside this file (``READERS``, ``HEADS``, ``ANSWERS``, ``VIEWS``, ``GRAPHS``), under the type's
name in a recipe. Shape letters: N rows, B batch, C outputs of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tasks.task_types.types import Output

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from tasks.methods.losses.means import Loss

# --- rows: reading and checking a user's table, for ports -------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """Reads and checks the labels of a table (``rows.py``; pyarrow and numpy)."""


# --- head: encoding, targets and losses, for training -----------------------------------------------------------------


class TeacherLoss(Protocol):
    """Returns the loss of a student's outputs against its teacher's, mixed with that against targets by
    ``hard_weight``; ``formula`` is ``default`` or ``paper``."""

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
    """Prepares the untrained head of a model for a training, by the targets that the function returns; after the
    context, the model is a plain one again."""


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
