"""Regression heads that start at the labels: the mean of the training rows as bias, and a learned scale.

A randomly initialised head answers about 0 for every row. Labels from 0 to 5 are then far away, and hundreds of steps
are spent on moving all answers to the mean and apart from each other, through layers that should learn the task. A head
that starts at the mean, in units of the labels' standard deviation, avoids these steps. The idea is old: LeCun et al.
1998, Efficient BackProp, shift and scale the targets of a network; van Hasselt et al. 2016, arXiv:1602.07714, put shift
and scale into its last layer.

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

SMALL = 0.02  # the standard deviation of BERT's initial weights


class ValueHead(nn.Linear):
    """Replaces a randomly initialised ``nn.Linear`` of one output during training: scale · (weight · states) + bias.

    AdamW moves every parameter by about the learning rate, regardless of its size, so a scale of 1.5 would hardly
    change while weights of 0.02 do. The parameter is therefore the logarithm of the scale, in units of such a weight;
    the scale never becomes 0.
    """

    def __init__(self, drawn: nn.Linear, mean: float, deviation: float) -> None:
        super().__init__(drawn.in_features, 1, device=drawn.weight.device)
        self.weight, self.bias, self.deviation = drawn.weight, drawn.bias, deviation
        self.growth = nn.Parameter(torch.zeros_like(drawn.bias.detach()))
        nn.init.constant_(self.bias, mean)

    @property
    def scale(self) -> Tensor:
        """The size, in the labels' unit, of one unit of the weights' output, [1]."""
        return self.deviation * torch.exp(self.growth / SMALL)

    def forward(self, states_BD: Tensor) -> Tensor:
        """Return values [B, 1] in the labels' unit."""
        return F.linear(states_BD, self.weight) * self.scale + self.bias


@contextmanager
def started_at_labels(model: Any, labels_N: np.ndarray) -> Iterator[None]:
    """Train a randomly initialised regression head of ``model`` from the mean and deviation of ``labels_N``, the labels
    of the training rows; NaN where a row has none.

    A head that is already trained, such as the teacher's, is not changed. Afterwards the model has its own
    ``nn.Linear`` again, with the scale in its weights.
    """
    known_N = labels_N[~np.isnan(labels_N)]
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
    """Return an untrained head of one output: its parent, its name in the parent, and the head itself; None if there is
    none.

    The bias of an untrained head is exactly 0 in every family, and the first step changes it.
    """
    inside = set(model.base_model.modules())
    places = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]
    for parent, name, child in places:
        if type(child) is nn.Linear and child.out_features == 1 and child not in inside and child.bias is not None:
            return None if child.bias.any() else (parent, name, child)
    return None
