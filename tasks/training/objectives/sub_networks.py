"""What the sub-networks of a supernet learn from the frozen model: its predictions, and its hidden states at their
layers and dimensions.

Method: Hou et al. 2020, DynaBERT, arXiv:2004.04037. Shape letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tasks.methods.losses.hidden_states import hidden_state_loss
from tasks.methods.losses.means import Loss
from tasks.methods.pruning.sub_networks import SubShape
from tasks.recipe.makers.slices import SupernetSlice
from tasks.task_types.heads import HEADS
from tasks.training.data.encoded import Batch
from tasks.training.data.rows import Task, TaskHead
from tasks.training.models.students import set_dropout
from tasks.training.models.supernet import Supernet
from tasks.training.objectives.capture import Capture, Signals


class SubNetwork(nn.Module):
    """The computation of one shape, with the weights of a supernet."""

    def __init__(self, supernet: Supernet, shape: SubShape, head: TaskHead, dropout: float | None = 0.0) -> None:
        """Prepare a shape; ``head`` names the outputs that are read beside all hidden states."""
        super().__init__()
        self.shape, self.module = shape, supernet.module_of(shape, "meta")
        set_dropout(self.module, dropout)
        self.capture = Capture(self.module, head, hidden=range(shape.layers + 1))

    def forward(self, **inputs: Tensor) -> Signals:
        """Return the outputs and all hidden states."""
        return self.capture(**inputs)

    def of(self, supernet: Supernet, inputs: Mapping[str, Tensor]) -> Signals:
        """Return the outputs and all hidden states with the weights that the supernet has now."""
        values = supernet.values_of(self.shape, self.module)
        named = {f"module.{name}": value for name, value in values.items()}
        found: Signals = functional_call(self, named, kwargs=dict(inputs))
        return found


@dataclass
class SupernetObjective:
    """What sub-networks learn from the frozen model."""

    knobs: SupernetSlice
    task: Task
    supernet: Supernet
    frozen: Capture

    def __post_init__(self) -> None:
        knobs = self.knobs
        self.known: dict[SubShape, SubNetwork] = {}
        self.loss_of_answers = partial(
            HEADS[knobs.task_type].teacher_loss,
            temperature=knobs.temperature,
            hard_weight=knobs.hard_weight,
            formula=knobs.formula,
        )

    def loss(self, batch: Batch, targets: Tensor, shapes: Sequence[SubShape]) -> Loss:
        """Return the sum of the losses of several shapes, for which the frozen model runs once."""
        with torch.no_grad():
            theirs = self.frozen(**batch.inputs(self.frozen.model))
        answers = {name: values.float() for name, values in batch.answers(theirs.outputs).items()}
        losses = [self.loss_of(shape, batch, targets, theirs, answers) for shape in shapes]
        return sum(losses[1:], losses[0])

    def loss_of(
        self, shape: SubShape, batch: Batch, targets: Tensor, theirs: Signals, answers: Mapping[str, Tensor]
    ) -> Loss:
        """Return the loss of one shape: to the predictions, and to the hidden states of its layers at its
        dimensions."""
        if shape not in self.known:
            self.known[shape] = SubNetwork(self.supernet, shape, self.task.head, self.knobs.dropout)
        ours = self.known[shape].of(self.supernet, batch.inputs(self.supernet.model))
        total: Loss = self.loss_of_answers(batch.answers(ours.outputs), answers, targets)
        width = self.supernet.width_of(shape.heads)
        behind = (0, *(layer + 1 for layer in self.supernet.kept[shape.layers]))
        for own, its in enumerate(behind if self.knobs.hidden_weight else ()):
            gap = hidden_state_loss(ours.hidden[own], theirs.hidden[its][..., :width], batch.mask_BT)
            total = total + self.knobs.hidden_weight * gap
        return total
