"""Integer grids as ONNX Runtime computes on them, and fake quantization: floats rounded to the values that integers of
a few bits hold, with gradients as if they were not.

Papers: Jacob et al. 2017, arXiv:1712.05877 (steps and zero points); Zafrir et al. 2019, Q8BERT, arXiv:1910.06188 (fake
quantization of BERT); gradients pass straight through, Bengio et al. 2013, arXiv:1308.3432. A step is the distance of
two neighbours on a grid, a code the integer of a value. Shape letters: O outputs, I inputs, B batch, T tokens, D width,
N blocks, W width of a block.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.methods.losses.means import in_full

SHARING = 32
"""Weights that share a step where a grid has blocks."""
CODES = 255
"""The largest code without a sign, of eight bits."""


class PassGradient(torch.autograd.Function):
    """Replaces values by quantized ones; the values get the gradient of those that replace them."""

    @staticmethod
    def forward(context: Any, values: Tensor, quantized: Tensor) -> Tensor:
        """Return the quantized values."""
        return quantized.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the values."""
        return gradients[0], None


def straight_through(values: Tensor, quantized: Tensor) -> Tensor:
    """Return quantized values that send their gradient to ``values``."""
    passed: Tensor = PassGradient.apply(values, quantized)
    return passed


def largest_code(bits: int) -> int:
    """Return the largest code with a sign: 127 of eight bits, 7 of four."""
    return int(2 ** (bits - 1) - 1)


def no_zero(steps: Tensor) -> Tensor:
    """Return steps by which one can divide: 1 where all values are 0."""
    return torch.where(steps == 0, torch.ones_like(steps), steps)


def fake_symmetric(values: Tensor, steps: Tensor, largest: int) -> Tensor:
    """Round values to multiples of a step, the zero point being 0; half of a step goes to the even neighbour."""
    quantized = (values.detach() / no_zero(steps)).round().clamp(-largest, largest) * steps
    return straight_through(values, quantized)


def step_of_all(values: Tensor, bits: int) -> Tensor:
    """Return one step for all values, the largest of which keeps its size."""
    return values.detach().abs().amax() / largest_code(bits)


def steps_of_outputs(weight_OI: Tensor, largest: int) -> Tensor:
    """Return a step [O, 1] for each output of a matrix: its largest weight has the code ``largest``, which is 127, or
    64 where a processor needs seven bits."""
    return weight_OI.detach().abs().amax(1, keepdim=True) / largest


def step_and_zero(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return the step and the zero point of ranges, with codes of 0 to 255; 0 lies in each range, and on its grid."""
    low, high = low.clamp(max=0), high.clamp(min=0)
    step = no_zero((high - low) / CODES)
    return step, (-low / step).clamp(0, CODES).round()


def asymmetric(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Round values to the 256 values of a range."""
    step, zero = step_and_zero(low.detach(), high.detach())
    codes = ((values.detach() / step).round() + zero).clamp(0, CODES)
    return straight_through(values, (codes - zero) * step)


def of_each_text(states: Tensor, mask_BT: Tensor | None) -> Tensor:
    """Round states [B, T, D] or [B, D] to the range of each text alone, of its own tokens: a graph finds this range
    where a text is asked alone. ``mask_BT`` is None where nothing is padded."""
    full = in_full(states)
    by_row = full.detach().flatten(1)
    low, high = by_row.amin(1), by_row.amax(1)
    if mask_BT is not None and states.ndim == 3 and states.shape[:2] == mask_BT.shape:
        padding_BT1 = ~mask_BT.bool()[:, :, None]
        low = full.detach().masked_fill(padding_BT1, 0).flatten(1).amin(1)  # 0 lies in each range
        high = full.detach().masked_fill(padding_BT1, 0).flatten(1).amax(1)
    shape = (-1, *(1,) * (states.ndim - 1))
    return asymmetric(full, low.view(shape), high.view(shape))


def as_blocks(values: Tensor) -> Tensor:
    """Return the last axis in blocks [..., N, W], the last one filled with zeros."""
    missing = -values.shape[-1] % SHARING
    return F.pad(values, (0, missing)).unflatten(-1, (-1, SHARING))


def from_blocks(blocks: Tensor, width: int) -> Tensor:
    """Return blocks as one axis again."""
    return blocks.flatten(-2)[..., :width]


def of_each_block(states: Tensor) -> Tensor:
    """Round states to eight bits with a step for each block of a token, as a product with weights in four bits does:
    neither the other tokens nor the other texts matter."""
    blocks = as_blocks(in_full(states))
    steps = blocks.detach().abs().amax(-1, keepdim=True) / largest_code(8)
    return from_blocks(fake_symmetric(blocks, steps, largest_code(8)), states.shape[-1])


def table_in_four_bits(rows: Tensor) -> Tensor:
    """Round rows of a table to four bits: of each block, the weight of the largest size has the code -8, whatever its
    sign, and is kept."""
    blocks = as_blocks(rows)
    found = blocks.detach()
    at = found.abs().argmax(-1, keepdim=True)
    steps = found.gather(-1, at) / -8
    codes = (found / no_zero(steps)).round().clamp(-8, 7)
    return from_blocks(straight_through(blocks, codes * steps), rows.shape[-1])


class OutputGrid(nn.Module):
    """The parametrization of a matrix in eight bits, with a step for each output; see ``steps_of_outputs``."""

    def __init__(self, largest: int) -> None:
        super().__init__()
        self.largest = largest

    def forward(self, weight_OI: Tensor) -> Tensor:
        """Return the matrix on its grid."""
        return fake_symmetric(weight_OI, steps_of_outputs(weight_OI, self.largest), self.largest)
