"""Masks of single weights: which of them stay, how many at each step, and the gradient of a score by which they stay.

Sources: the cubic schedule, Zhu, Gupta 2017, arXiv:1710.01878; movement and soft movement, Sanh et al. 2020,
arXiv:2005.07683: a weight that training moves away from 0 stays, one that it moves towards 0 goes. The reference ranks
the weights of each matrix for themselves; by default, ours are ranked over all matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

LAST_THRESHOLD = 0.1
"""The last threshold of soft movement, for the sigmoid of a score (Sanh et al. 2020, table 2)."""


def cubic(step: int, begin: int, end: int, first: float, last: float) -> float:
    """Return a value that goes from ``first`` to ``last`` between two steps, quickly first, and slowly at the end.

    Raises ValueError where ``end`` is not behind ``begin``.
    """
    if end <= begin:
        raise ValueError(f"the ramp from step {begin:,} to step {end:,} has no length")
    if step <= begin:
        return first
    return last if step >= end else last + (first - last) * (1 - (step - begin) / (end - begin)) ** 3


def largest(scores: Sequence[Tensor], count: int) -> list[Tensor]:
    """Return a mask for each tensor: the ``count`` largest scores over all of them stay; of equals, the first ones."""
    flat_W = torch.cat([one.detach().flatten() for one in scores])
    mask_W = torch.zeros_like(flat_W, dtype=torch.bool)
    if count > 0:
        cut = flat_W.kthvalue(len(flat_W) - count + 1).values
        equal_W = flat_W == cut
        mask_W = flat_W > cut
        mask_W |= equal_W & (equal_W.cumsum(0) <= count - mask_W.sum())
    parts = mask_W.split([one.numel() for one in scores])
    return [part.view(one.shape) for part, one in zip(parts, scores, strict=True)]


def masks_of(scores: Sequence[Tensor], share: float, scope: str) -> list[Tensor]:
    """Return masks in which a share of the weights stays: of all matrices together (global), or of each (matrix)."""
    if scope == "matrix":
        return [largest([one], int(share * one.numel()))[0] for one in scores]
    return largest(scores, int(share * sum(one.numel() for one in scores)))


def share_above(scores: Sequence[Tensor], threshold: float) -> float:
    """Return the share of scores whose sigmoid is above a threshold."""
    bound = math.log(threshold / (1 - threshold)) if threshold > 0 else -math.inf
    return sum(int((one.detach() > bound).sum()) for one in scores) / sum(one.numel() for one in scores)


def pressure(scores: Sequence[Tensor]) -> Tensor:
    """Return the mean over matrices of the mean sigmoid of their scores, which soft movement makes smaller."""
    return torch.stack([one.sigmoid().mean() for one in scores]).mean()


class StraightThrough(torch.autograd.Function):
    """Multiplies weights by a mask. A score gets the gradient that its place in the mask would have, also where the
    mask is 0; a weight that is masked gets none."""

    @staticmethod
    def forward(context: Any, weight: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Return the masked weights."""
        context.save_for_backward(weight, mask)
        return weight * mask

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of weights and scores."""
        weight, mask = context.saved_tensors
        return gradients[0] * mask, gradients[0] * weight, None


class WeightMask(nn.Module):
    """The parametrization of a masked weight: a mask, and scores that learn where they are given."""

    mask: Tensor

    def __init__(self, weight: Tensor, scores: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones_like(weight))
        self.scores = None if scores is None else nn.Parameter(scores)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the masked weights."""
        if self.scores is None:
            return weight * self.mask
        masked: Tensor = StraightThrough.apply(weight, self.scores, self.mask)
        return masked
