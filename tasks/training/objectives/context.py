"""What an inner objective is: who learns from whom, and the few things that every objective can do.

An objective is a way for a student to copy more of its teacher than the answers; each is one file, and
``objectives.py`` lists them by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from tasks.engine.job import Job
from tasks.methods.losses.means import Loss
from tasks.recipe.slices import GeneralSlice, IntermediateSlice
from tasks.training.data.rows import Batch, Encoded
from tasks.training.objectives.capture import Signals


@dataclass(frozen=True)
class DistillationContext:
    """Who takes part: the student, its frozen teacher, the phase's knobs, and what some objectives need to know of the
    text."""

    student: Any
    teacher: Any
    knobs: GeneralSlice | IntermediateSlice
    tokenizer: Any
    text: Encoded | None = None
    """General text, where that is what is read."""
    labels_N: np.ndarray | None = None
    kind: str = "classification"
    longest: int | None = None
    """Tokens of the longest row that there can be: what a loss pads to that counts padding."""


class Objective:
    """What the student learns inside. ``modules`` is what is trained, the student among it; most objectives need
    nothing but a loss."""

    modules: nn.Module
    width: int | None = None
    """Tokens that every row is padded to, where padding is part of the loss; None: to the longest row of a batch."""

    def check_capture(self, job: Job, batch: Batch) -> None:
        """Check on a real batch that what is read of the models is what it is taken for, before hours are spent on
        it."""

    def begin(self, step: int, total: int) -> None:
        """Get ready for a step."""

    def loss(self, batch: Batch, theirs: Signals | None = None) -> Loss:
        """Return the loss of a batch; ``theirs`` is what the teacher shows of it, where that was kept."""
        raise NotImplementedError

    def finish(self) -> dict[str, Any]:
        """Leave the student a plain model, and return what a table wants to know."""
        return {}
