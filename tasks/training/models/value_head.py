"""Regression heads that start where the labels are: the mean of the training rows as bias, and a scale that learns.

A drawn head answers about 0 for every row. Labels from 0 to 5 are then far away, and a training's first hundreds of
steps go into moving all answers to their mean and apart from each other, through layers that should learn the task. A
head that starts at the mean, in units of the labels' deviation, leaves that to no step. The idea is old: LeCun et al.
1998, Efficient BackProp, shift and scale what a network is to answer.

A trained model is a plain one: the scale is multiplied into the weights at the end.
Shape letters: N rows, B batch, D width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.training.data.rows import Task

SMALL = 0.02  # the size of a weight as BERT draws it


class ValueHead(nn.Linear):
    """Stands in for a drawn ``nn.Linear`` of one output while it is trained: scale · (weight · states) + bias.

    AdamW moves every number by about the learning rate, whatever its size, so a scale of 1.5 would stand still where
    weights of 0.02 move. What is learned is therefore its logarithm, in units of such a weight; and it never becomes 0.
    """

    def __init__(self, drawn: nn.Linear, mean: float, deviation: float) -> None:
        super().__init__(drawn.in_features, 1, device=drawn.weight.device)
        self.weight, self.bias, self.deviation = drawn.weight, drawn.bias, deviation
        self.growth = nn.Parameter(torch.zeros_like(drawn.bias.detach()))
        nn.init.constant_(self.bias, mean)

    @property
    def scale(self) -> Tensor:
        """The labels' units in one unit of what the weights give, [1]."""
        return self.deviation * torch.exp(self.growth / SMALL)

    def forward(self, states_BD: Tensor) -> Tensor:
        """Return values [B, 1] in the labels' unit."""
        return F.linear(states_BD, self.weight) * self.scale + self.bias


@contextmanager
def started_at_labels(model: Any, task: Task, labels_N: np.ndarray) -> Iterator[None]:
    """Train a drawn regression head of ``model`` from the mean and deviation of ``labels_N``, those of the training
    rows.

    A head that has learned already, be it the teacher's, and heads of other tasks are left alone. Afterwards the model
    has its own ``nn.Linear`` again, with the scale in its weights.
    """
    known_N = labels_N[~np.isnan(labels_N)] if task.kind == "regression" else labels_N[:0]
    found = drawn_head(model) if len(known_N) else None
    if found is None:
        yield
        return
    parent, name, drawn = found
    head = ValueHead(drawn, float(known_N.mean()), float(known_N.std()) or 1.0)
    setattr(parent, name, head)
    try:
        yield
    finally:
        with torch.no_grad():
            drawn.weight *= head.scale
        setattr(parent, name, drawn)


def drawn_head(model: Any) -> tuple[nn.Module, str, nn.Linear] | None:
    """Return where a head of one output stands that has never learned: its parent, its name in it, and itself.

    A drawn head's bias is exactly 0 in every family, and one step moves it.
    """
    inside = set(model.base_model.modules())
    places = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]
    for parent, name, child in places:
        if type(child) is nn.Linear and child.out_features == 1 and child not in inside and child.bias is not None:
            return None if child.bias.any() else (parent, name, child)
    return None
