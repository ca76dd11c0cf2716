"""Learned ranges of states: one step and one zero point for all that a linear map reads, as a graph with static ranges
has them; the step is trained, the zero point is not.

Paper: Esser et al. 2019, "Learned Step Size Quantization", arXiv:1902.08153, with its codes from -Qn to Qp: here Qn is
the zero point z, Qp is 255 - z, and a graph stores a code plus z. z = 128 are the paper's states with a sign, z = 0
those without. What is clipped is told from the rounded code, as in ``learned_steps.py``.

A step starts from the smallest and the largest value that were measured, not at the paper's 2 mean|x| / sqrt(Qp),
which clips outliers: on 128 sentences of SST-2, before any training, the last states of MiniLM with what all its maps
read rounded are off by 15 % with measured ranges and by 52 % with the paper's start. Trainings for eight bits are short
and their rates small, and Adam moves a step by the rate at most, so it should begin near its end; and the control,
whose steps are not trained, begins with the same ones.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tasks.methods.losses.means import in_full
from tasks.methods.quantization.grids import CODES, step_and_zero

STATED_RANGES = "limbeck_ranges"
"""The entry of a model's config: step and zero point of what each linear map reads, by the map's name."""


class FixedRange(NamedTuple):
    """The range of all states that one map reads: its step is the distance of neighbouring codes."""

    step: float
    zero: int
    """The code of 0, between 0 and 255."""


class LearnedRange(torch.autograd.Function):
    """Rounds states to a range; states and step get a gradient."""

    @staticmethod
    def forward(context: Any, values: Tensor, step: Tensor, zero: int) -> Tensor:
        """Return the rounded states."""
        context.save_for_backward(values, step)
        context.zero = zero
        return (values / step).round().clamp(-zero, CODES - zero) * step

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of states and step; the step's is scaled by 1 / sqrt(number of states x Qp)."""
        values, step = context.saved_tensors
        low, high = -context.zero, CODES - context.zero
        scaled = values / step
        codes = scaled.round()
        inside = (codes >= low) & (codes <= high)
        moved = torch.where(inside, codes - scaled, codes.clamp(low, high))
        scale = 1 / math.sqrt(values.numel() * max(high, 1))
        return gradients[0] * inside, (gradients[0] * moved).sum().view(step.shape) * scale, None


def on_learned_range(states: Tensor, step: Tensor, zero: int) -> Tensor:
    """Round states, in float32, to 256 codes of one step, of which ``zero`` lie below 0."""
    found: Tensor = LearnedRange.apply(in_full(states), step, zero)
    return found


def measured_range(low: Tensor, high: Tensor) -> FixedRange:
    """Return the range between two values of which all 256 codes are used; 0 has a code."""
    step, zero = step_and_zero(low, high)
    return FixedRange(float(step), int(zero))
