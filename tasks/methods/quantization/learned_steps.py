"""Learned steps: the distance of neighbours on a grid is trained with the weights, or with the states, that it rounds.

Paper: Esser et al. 2019, "Learned Step Size Quantization", arXiv:1902.08153. What is beyond the largest code is clipped
and gets no gradient; a step's gradient is scaled so that it moves as fast as what it rounds.

What is beyond is told from the rounded code, as in published code. The paper's equations 3 and 5 tell it from the value
in steps before it is rounded: up to half a step beyond the outermost codes, such a value gets no gradient there, and
its step that of a clipped one. This matters with 2 bits, whose largest code is 1: all values between 1 and 1.5 steps.
Shape letters: O outputs, N blocks, W width of a block.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from tasks.methods.quantization.grids import as_blocks, from_blocks, largest_code

SMALLEST_STEP = 1e-8
"""No step becomes smaller."""


class LearnedStep(torch.autograd.Function):
    """Rounds values to multiples of a step; both get a gradient."""

    @staticmethod
    def forward(context: Any, values: Tensor, step: Tensor, bits: int) -> Tensor:
        """Return the rounded values."""
        context.save_for_backward(values, step)
        context.bits = bits
        high = largest_code(bits)
        return (values / step).round().clamp(-high - 1, high) * step

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of values and steps, the latter summed over the values that share a step; clipped is
        what has no code after rounding."""
        values, step = context.saved_tensors
        high = largest_code(context.bits)
        scaled = values / step
        codes = scaled.round()
        inside = (codes >= -high - 1) & (codes <= high)
        moved = torch.where(inside, codes - scaled, codes.clamp(-high - 1, high))
        scale = 1 / math.sqrt(values.numel() / step.numel() * high)
        return gradients[0] * inside, (gradients[0] * moved).sum_to_size(step.shape) * scale, None


def on_learned_grid(values: Tensor, step: Tensor, bits: int) -> Tensor:
    """Round values to codes of so many bits with a sign, times a step that learns; ``step`` is broadcast."""
    found: Tensor = LearnedStep.apply(values, step, bits)
    return found


def first_steps(values: Tensor, bits: int) -> Tensor:
    """Return the steps before training, for the last axis of values: twice their mean size, by the root of the largest
    code."""
    return (2 * values.abs().mean(-1, keepdim=True) / math.sqrt(largest_code(bits))).clamp(min=SMALLEST_STEP)


TRIED_STEPS = 50
"""Steps of which the nearest one is taken: even shares of the one whose largest code is the largest value."""


def nearest_steps(values: Tensor, bits: int) -> Tensor:
    """Return the steps that leave the least squared error of rounding, for the last axis of values: what is known
    without training."""
    widest = values.abs().amax(-1, keepdim=True) / largest_code(bits)
    best, least = widest.clamp(min=SMALLEST_STEP), torch.full_like(widest, math.inf)
    for number in range(1, TRIED_STEPS + 1):
        step = (widest * number / TRIED_STEPS).clamp(min=SMALLEST_STEP)
        error = (on_learned_grid(values, step, bits) - values).square().sum(-1, keepdim=True)
        best, least = torch.where(error < least, step, best), torch.minimum(error, least)
    return best


class LearnedGrid(nn.Module):
    """The parametrization of a matrix in a few bits, with a learned step for each block of an output's weights;
    ``nearest``: with the steps that leave the least error, for weights that will not be trained with them."""

    def __init__(self, weight_OI: Tensor, bits: int, *, nearest: bool = False) -> None:
        super().__init__()
        self.bits = bits
        blocks_ONW = as_blocks(weight_OI.detach())
        filled = as_blocks(torch.ones_like(weight_OI)).mean(-1, keepdim=True)
        steps_ON1 = nearest_steps(blocks_ONW, bits) if nearest else first_steps(blocks_ONW, bits) / filled
        self.step = nn.Parameter(steps_ON1.flatten())  # of one axis: the optimizer decays matrices alone
        self.blocks = steps_ON1.shape

    def forward(self, weight_OI: Tensor) -> Tensor:
        """Return the matrix on its grid."""
        rounded = on_learned_grid(as_blocks(weight_OI), self.step.view(self.blocks), self.bits)
        return from_blocks(rounded, weight_OI.shape[-1])
