"""Copying the self-attention of the teacher's last layer: its attention distributions and its value relations.

Method: Wang et al. 2020, MiniLM, arXiv:2002.10957. Its successor, in ``relations.py``, does not require equal numbers
of heads.
"""

from __future__ import annotations

from typing import Any

import torch

from tasks.engine.job import Job
from tasks.methods.losses.attention_distributions import attention_distribution_loss
from tasks.methods.losses.means import Loss
from tasks.methods.losses.relations import relation_loss
from tasks.recipe.methods import SelfAttention as SelfAttentionKnobs
from tasks.training.data.encoded import Batch
from tasks.training.objectives.capture import Capture, Signals, check_capture
from tasks.training.objectives.context import DistillationContext, Objective


class SelfAttention(Objective):
    """Compares the last layers of student and teacher; ``knobs`` are those of the section ``self_attention``."""

    repeats = True

    def __init__(self, student: Any, teacher: Any, knobs: SelfAttentionKnobs) -> None:
        self.modules, self.student, self.teacher, self.knobs = student, student, teacher, knobs
        self.own, self.copied = student.config.num_hidden_layers - 1, teacher.config.num_hidden_layers - 1
        self.of_student = Capture(student, attention=[self.own], states=[self.own])
        self.of_teacher = Capture(teacher, attention=[self.copied], states=[self.copied])

    def check_capture(self, job: Job, batch: Batch) -> None:
        """Check the capture of the teacher."""
        check_capture(self.of_teacher, batch.inputs(self.teacher), batch.mask_BT)

    def loss(self, batch: Batch, theirs: Signals | None = None) -> Loss:
        """Return the weighted sum of both terms."""
        if theirs is None:
            with torch.no_grad():
                theirs = self.of_teacher(**batch.inputs(self.teacher))
        ours = self.of_student(**batch.inputs(self.student))
        attention = attention_distribution_loss(ours.scores[self.own], theirs.scores[self.copied], batch.mask_BT)
        values = ours.states[self.own]["value"], theirs.states[self.copied]["value"]
        relation = relation_loss(*values, batch.mask_BT, heads=self.student.config.num_attention_heads)
        return self.knobs.attention * attention + self.knobs.value * relation


def self_attention(context: DistillationContext) -> SelfAttention:
    """Return the objective for a distillation context."""
    return SelfAttention(context.student, context.teacher, context.knobs.self_attention)
