"""Copying relations between tokens, from one layer of the teacher to the student's last.

Method: Wang et al. 2020, MiniLMv2, arXiv:2012.15828. Teacher and student may differ in layers, widths and heads, and
attention may run in a fused kernel.
"""

from __future__ import annotations

from typing import Any

import torch

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.losses.means import Loss
from tasks.methods.losses.relations import relation_heads, relation_loss, require_heads
from tasks.recipe.methods import Relations as RelationsKnobs
from tasks.training.data.encoded import Batch
from tasks.training.objectives.capture import Capture, Signals, check_capture
from tasks.training.objectives.context import DistillationContext, Objective

KINDS = ("query", "key", "value")


class Relations(Objective):
    """Compares the relations of queries, of keys and of values; ``knobs`` are those of the section ``relations``."""

    repeats = True

    def __init__(self, student: Any, teacher: Any, knobs: RelationsKnobs) -> None:
        depth, widths = teacher.config.num_hidden_layers, (student.config.hidden_size, teacher.config.hidden_size)
        self.modules, self.student, self.teacher, self.knobs = student, student, teacher, knobs
        self.copied, self.own = (knobs.layer or depth) - 1, student.config.num_hidden_layers - 1
        if not 0 <= self.copied < depth:
            raise ModelError(
                f"relations.layer is {knobs.layer}, and the teacher has layers 1 to {depth}; choose one of them"
            )
        self.heads = knobs.heads or relation_heads(*widths)
        for width in widths:
            require_heads(self.heads, width)
        self.of_student, self.of_teacher = Capture(student, states=[self.own]), Capture(teacher, states=[self.copied])

    def check_capture(self, job: Job, batch: Batch) -> None:
        """Check the capture of the teacher, and log which layers are compared."""
        check_capture(self.of_teacher, batch.inputs(self.teacher), batch.mask_BT)
        job.log(
            f"relations: the student's last layer is distilled from the teacher's layer {self.copied + 1}, in "
            f"{self.heads} "
            f"relation heads"
        )

    def loss(self, batch: Batch, theirs: Signals | None = None) -> Loss:
        """Return the weighted sum over queries, keys and values."""
        if theirs is None:
            with torch.no_grad():
                theirs = self.of_teacher(**batch.inputs(self.teacher))
        ours = self.of_student(**batch.inputs(self.student)).states[self.own]
        total = Loss()
        for kind in KINDS:
            weight = getattr(self.knobs, kind)
            if weight:
                total = total + weight * relation_loss(
                    ours[kind], theirs.states[self.copied][kind], batch.mask_BT, heads=self.heads
                )
        return total

    def finish(self) -> dict[str, object]:
        """Return the number of the copied layer, counted from 1, and the number of relation heads."""
        return {"teacher_layer": self.copied + 1, "relation_heads": self.heads}


def relations(context: DistillationContext) -> Relations:
    """Return the objective for a distillation context."""
    return Relations(context.student, context.teacher, context.knobs.relations)
