"""Means over all elements of a step, also if several processes share the step.

A mean of means is not the mean if the shares differ in size (tokens, pairs, labelled rows). Each process therefore
divides its sum by the total count per process, and gradients are averaged over processes as in Li et al. 2020, PyTorch
Distributed, arXiv:2006.15704.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Count = Callable[[Tensor], Tensor]
"""Maps the number of elements in a process's sum to the divisor of that sum."""


def in_full(values: Tensor) -> Tensor:
    """Return values in float32 at least: half precision rounds small shares and differences away. float64 stays as it
    is."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def alone(count: Tensor) -> Tensor:
    """Return a process's own count as its divisor, at least 1."""
    return count.clamp(min=1)


_divisors: list[Count] = [alone]


def mean_of(total: Tensor, count: Tensor | int) -> Tensor:
    """Return a sum over ``count`` elements as a mean; over none it is 0."""
    return total / _divisors[-1](torch.as_tensor(count, device=total.device))


@contextmanager
def counted_by(count: Count) -> Iterator[None]:
    """Compute every mean in this block over all processes, with the divisors of ``count``."""
    _divisors.append(count)
    try:
        yield
    finally:
        _divisors.pop()
