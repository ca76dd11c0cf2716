"""Learning the task while layers of the student replace layers of the teacher, with growing probability.

Method: Xu et al. 2020, BERT-of-Theseus, arXiv:2002.02925.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from tasks.architectures.requirements import require_alone
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.layers.layer_dropping import encoder_layers
from tasks.methods.layers.theseus import Replaceable, chance, groups
from tasks.methods.losses.means import Loss
from tasks.recipe.slices import IntermediateSlice
from tasks.training.data.encoded import Batch
from tasks.training.objectives.capture import Signals, outputs_of
from tasks.training.objectives.context import DistillationContext, Objective

if TYPE_CHECKING:
    from tasks.training.data.rows import TaskHead


class Replacing(Objective):
    """Trains the student's layers in place of the teacher's; ``knobs`` are those of the phase. All weights outside the
    layers are frozen, as in the paper."""

    def __init__(
        self, student: Any, teacher: Any, knobs: IntermediateSlice, targets: np.ndarray, head: TaskHead
    ) -> None:
        require_alone(student.config)
        self.modules, self.student, self.knobs, self.head = student, student, knobs, head
        self.targets = torch.from_numpy(targets).to(student.device)
        self.stack, theirs = encoder_layers(student), encoder_layers(teacher)
        self.replaced = groups(len(self.stack), len(theirs))
        student.requires_grad_(False)
        for number, group in enumerate(self.replaced):
            successor = self.stack[number].requires_grad_(True)
            self.stack[number] = Replaceable(successor, [theirs[layer] for layer in group])

    def check_capture(self, job: Job, batch: Batch) -> None:
        """Log which layers are replaced."""
        job.log(
            "each layer replaces the teacher's (counted from 0): "
            + "; ".join(", ".join(map(str, group)) for group in self.replaced)
        )

    def begin(self, step: int, total: int) -> None:
        """Draw the layers of the student that are active in this step; the draw depends on seed and step alone, so a
        resumed training and all processes draw alike."""
        now = chance(step, total, first=self.knobs.replacing.first, share=self.knobs.replacing.share)
        drawn = np.random.default_rng([self.knobs.seed, step]).random(len(self.stack)) < now
        # A step without any layer of the student would train nothing.
        drawn[step % len(drawn)] |= not drawn.any()
        for module, stands_in in zip(self.stack, drawn, strict=True):
            cast(Replaceable, module).replaced = bool(stands_in)

    def loss(self, batch: Batch, theirs: Signals | None = None) -> Loss:
        """Return the loss of the task."""
        assert batch.at_B is not None
        said = self.student(**batch.inputs(self.student))
        return self.head.label_loss(batch.answers(outputs_of(self.head, said)), self.targets[batch.at_B])

    def finish(self) -> dict[str, object]:
        """Remove the teacher's layers from the student, and unfreeze it."""
        for number, module in enumerate(self.stack):
            self.stack[number] = cast(Replaceable, module).successor
        self.student.requires_grad_(True)
        return {"replaced": self.replaced}


def replacing(context: DistillationContext) -> Replacing:
    """Return the objective for a distillation context on labelled rows."""
    targets, head = context.targets, context.head
    if targets is None or head is None or not isinstance(context.knobs, IntermediateSlice):
        raise ModelError("replacing layers needs labelled rows; use it as task_distillation.intermediate.method")
    return Replacing(context.student, context.teacher, context.knobs, targets, head)
