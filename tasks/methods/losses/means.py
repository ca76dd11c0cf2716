"""Means over all elements of a step, also if several processes share the step.

A mean of means is not the mean if the shares differ in size (tokens, pairs, labelled rows). A loss therefore holds
its sums and their counts, and the training loop divides: each process its sum by the total count per process, and
gradients are averaged over processes as in Li et al. 2020, PyTorch Distributed, arXiv:2006.15704.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Divisor = Callable[[Tensor], Tensor]
"""Maps the number of elements in a process's sum to the divisor of that sum."""


def in_full(values: Tensor) -> Tensor:
    """Return values in float32 at least: half precision rounds small shares and differences away. float64 stays as it
    is."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def own_count(count: Tensor) -> Tensor:
    """Return the count of one process; a sum over nothing is divided by 1."""
    return count.clamp(min=1)


@dataclass(frozen=True)
class Term:
    """One sum of a loss, a scalar, over ``count`` numbers; ``weight`` is that of its mean."""

    total: Tensor
    count: Tensor | int
    weight: float | None = None

    def mean(self, divisor: Divisor) -> Tensor:
        """Return the weighted mean, a scalar."""
        count, place = self.count, self.total.device
        # Filled there: a number that is copied to a GPU makes the program wait for it.
        counted = count if isinstance(count, Tensor) else torch.full((), count, dtype=torch.int64, device=place)
        mean = self.total / divisor(counted)
        return mean if self.weight is None else self.weight * mean


@dataclass(frozen=True)
class Loss:
    """A weighted sum of means, before it is divided: losses are added, and multiplied by numbers."""

    terms: tuple[Term, ...] = ()

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.terms + other.terms)

    def __rmul__(self, weight: float) -> Loss:
        return Loss(
            tuple(replace(term, weight=weight if term.weight is None else weight * term.weight) for term in self.terms)
        )

    def mean(self, divisor: Divisor = own_count) -> Tensor:
        """Return the loss as a scalar; without a divisor, each sum is divided by its own count, and one over nothing
        is 0.

        Raises ValueError where there are no terms.
        """
        if not self.terms:
            raise ValueError("a loss without terms has no mean")
        first, *others = (term.mean(divisor) for term in self.terms)
        return sum(others, first)


def mean_of(total: Tensor, count: Tensor | int) -> Loss:
    """Return the loss that is a sum over ``count`` numbers, divided by them."""
    return Loss((Term(total, count),))
