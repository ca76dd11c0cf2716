"""Module replacing: while the task is learned, each layer of the student randomly takes the place of the teacher's
layers that it replaces.

Paper: Xu et al. 2020, "BERT-of-Theseus: Compressing BERT by Progressive Module Replacing", arXiv:2002.02925.
The only loss is the task's. The teacher's layers are frozen; replacement is random per step and module, with a
probability that grows until the student works alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tasks.errors import ModelError


def chance(step: int, total: int, *, first: float, share: float) -> float:
    """Return the probability that a module is replaced at a step: rising linearly from ``first`` to 1 over a ``share``
    of the training, then 1."""
    rising = max(1.0, share * total)
    return min(1.0, first + (1.0 - first) * step / rising)


def groups(students: int, teachers: int) -> list[list[int]]:
    """Return the teacher's layers that each layer of the student replaces, all of them in order."""
    if not 1 <= students <= teachers:
        raise ModelError(f"{students} layers cannot replace {teachers}; give the student 1 to {teachers} layers")
    ends = [round(layer * teachers / students) for layer in range(students + 1)]
    return [list(range(first, last)) for first, last in zip(ends, ends[1:], strict=False)]


class Replaceable(nn.Module):
    """Runs the successor or, in training, its frozen predecessors; ``replaced`` is drawn anew before every step."""

    def __init__(self, successor: nn.Module, predecessors: Sequence[nn.Module]) -> None:
        super().__init__()
        self.successor = successor
        # A plain list keeps them out of the student's modules: neither trained nor saved.
        self.predecessors, self.replaced = list(predecessors), True

    def forward(self, hidden: torch.Tensor, *given: Any, **named: Any) -> Any:
        """Pass a hidden state through one module or the other."""
        if self.replaced or not self.training:
            return self.successor(hidden, *given, **named)
        out: Any = hidden
        for layer in self.predecessors:
            out = layer(out[0] if isinstance(out, tuple) else out, *given, **named)
        return out
