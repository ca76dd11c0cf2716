"""LAMB: Adam's step in units of each tensor's own norm, for very large batches.

Paper: You et al. 2019, "Large Batch Optimization for Deep Learning", arXiv:1904.00962, as ALBERT's code takes it (Lan
et al. 2019, arXiv:1909.11942): no correction of the moments' bias, norms and biases out of decay and adaptation, and no
bound on the ratio. A parameter that stands in several places of a model is one tensor, and has one ratio.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def direction(mean: Tensor, square: Tensor, weight: Tensor, *, weight_decay: float, eps: float) -> Tensor:
    """Return Adam's direction with decay, from the two moments as they are after this step."""
    return mean / (square.sqrt() + eps) + weight_decay * weight


def trust_ratio(weight: Tensor, direction: Tensor) -> Tensor:
    """Return the norm of a tensor in that of its direction; 1 where either norm is 0."""
    ours, theirs = weight.norm(), direction.norm()
    return torch.where((ours > 0) & (theirs > 0), ours / theirs, torch.ones_like(ours))


class Lamb(torch.optim.Optimizer):
    """LAMB. A group of parameters states whether its steps are ``adapted``; ``grad_scale``, where it is set, divides
    all gradients before the moments see them, as in torch's fused optimizers."""

    grad_scale: Tensor | None = None

    def __init__(
        self,
        groups: Iterable[dict[str, object]],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapted": True})

    def step(self, closure: Any = None) -> Any:
        """Take one step with the gradients that are there."""
        with torch.no_grad():
            for group in self.param_groups:
                for weight in [value for value in group["params"] if value.grad is not None]:
                    towards = self.direction_of(weight, group["betas"], group["weight_decay"], group["eps"])
                    if group["adapted"]:
                        towards.mul_(trust_ratio(weight, towards))
                    weight.add_(towards, alpha=-group["lr"])

    def direction_of(self, weight: Tensor, betas: tuple[float, float], weight_decay: float, eps: float) -> Tensor:
        """Bring the moments of one tensor up to date, and return the direction of its step."""
        state, (of_mean, of_square) = self.state[weight], betas
        if not state:
            state.update(mean=torch.zeros_like(weight), square=torch.zeros_like(weight))
        assert weight.grad is not None
        gradient = weight.grad if self.grad_scale is None else weight.grad / self.grad_scale
        mean, square = state["mean"], state["square"]
        mean.mul_(of_mean).add_(gradient, alpha=1 - of_mean)
        square.mul_(of_square).addcmul_(gradient, gradient, value=1 - of_square)
        return direction(mean, square, weight, weight_decay=weight_decay, eps=eps)
