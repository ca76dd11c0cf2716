"""The interface of an inner objective: the models and data that it gets, and the methods that every objective has.

An objective is a way for a student to copy more of its teacher than the answers; each has a file of its own, and
``objectives.py`` lists them by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from tasks.engine.job import Job
from tasks.methods.losses.means import Loss
from tasks.recipe.slices import GeneralSlice, IntermediateSlice
from tasks.training.data.encoded import Batch, Encoded
from tasks.training.models.phases import Phase
from tasks.training.objectives.capture import Capture, Signals

if TYPE_CHECKING:
    from tasks.training.data.rows import TaskHead


@dataclass(frozen=True)
class DistillationContext:
    """The inputs of an objective: the student, its frozen teacher, the phase's knobs, and the facts about the text that
    some objectives need."""

    student: Any
    teacher: Any
    knobs: GeneralSlice | IntermediateSlice
    tokenizer: Any
    text: Encoded | None = None
    """The tokens of general text, in general distillation."""
    targets: np.ndarray | None = None
    head: TaskHead | None = None
    """The head of the task's type, and the targets that go with it; none in general distillation."""
    longest: int | None = None
    """Upper limit of the tokens in a row; a loss that counts padding pads every row to it."""


class Objective:
    """The student's inner objective. ``modules`` are the trained modules, including the student; most objectives only
    define a loss."""

    modules: nn.Module
    width: int | None = None
    """Tokens that every row is padded to, if padding is part of the loss; None: to the longest row of a batch."""
    repeats = False
    """Whether all steps of a phase do the same with batches of the same sizes, so that a GPU can repeat them."""
    of_teacher: Capture
    """Runs the teacher; an objective that can read recorded signals has it, for the rows that have none."""

    def check_capture(self, job: Job, batch: Batch) -> None:
        """Check on a real batch that the captured signals are correct, before hours of training depend on them."""

    def begin(self, step: int, total: int) -> None:
        """Prepare for a step."""

    def phases(self, total: int) -> Sequence[Phase]:
        """Return the phases of a training of so many steps: by default one, in which all parameters learn."""
        return [Phase(total)]

    def after_step(self, step: int) -> None:
        """Change the modules after a step of the optimizer; called without gradients."""

    def loss(self, batch: Batch, theirs: Signals | None = None) -> Loss:
        """Return the loss of a batch; ``theirs`` are the teacher's recorded signals of the batch, if there are any."""
        raise NotImplementedError

    def finish(self) -> dict[str, object]:
        """Turn the student into a plain model again, and return facts for result tables."""
        return {}
