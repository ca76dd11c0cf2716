"""The mean over everything that a step sees, also where several processes share the step.

A mean of means is not the mean where the shares differ in size (tokens, pairs, labelled rows). Each process therefore
divides its sum by its part of everybody's count, and gradients are averaged over processes as Li et al. 2020, PyTorch
Distributed, arXiv:2006.15704, do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Count = Callable[[Tensor], Tensor]
"""Takes how many numbers a process sums up, returns what it divides by."""


def in_full(values: Tensor) -> Tensor:
    """Return numbers in float32 at least: half precision rounds small shares and differences away. float64 stays as it
    is."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def alone(count: Tensor) -> Tensor:
    """Divide by one's own count."""
    return count.clamp(min=1)


_divisors: list[Count] = [alone]


def mean_of(total: Tensor, count: Tensor | int) -> Tensor:
    """Return a sum over ``count`` numbers as a mean; over nothing it is 0."""
    return total / _divisors[-1](torch.as_tensor(count, device=total.device))


@contextmanager
def counted_by(count: Count) -> Iterator[None]:
    """Let every mean in this block be one over all processes."""
    _divisors.append(count)
    try:
        yield
    finally:
        _divisors.pop()
