"""Ensembles: mix the predictions of several teachers into one, by fixed weights or by each teacher's certainty of the
row.

Paper: Hinton, Vinyals, Dean 2015, "Distilling the Knowledge in a Neural Network", arXiv:1503.02531, which mixes the
predictive distributions. Each teacher is softened before the mixture: softening the mixture instead would leave one
certain teacher as certain as before among uncertain ones. The weight by certainty, 1 - entropy / log C of the
unsoftened prediction, is the simplest of those in use. Shape letters in this file: M teachers, N rows, C classes (1 for
regression).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tasks.errors import ModelError, RecipeError

LEAST = 1e-6  # a teacher without any certainty still counts a little, so that no row is left without one

Mixture = Callable[[Tensor, Sequence[float]], Tensor]


def by_weights(logits_MNC: Tensor, weights_M: Sequence[float]) -> Tensor:
    """Return the weights [M, N] of the recipe, the same for every row."""
    given_M = torch.as_tensor(weights_M, dtype=torch.float64)
    return (given_M / given_M.sum())[:, None].expand(logits_MNC.shape[:2])


def by_certainty(logits_MNC: Tensor, weights_M: Sequence[float]) -> Tensor:
    """Return weights [M, N] in proportion to each teacher's certainty of each row, times the weights of the recipe."""
    if logits_MNC.shape[-1] < 2:
        raise RecipeError(
            "an ensemble weighed by certainty needs classes, and this task predicts a number; use combine: weights"
        )
    logp_MNC = logits_MNC.double().log_softmax(-1)
    entropy_MN = -(logp_MNC.exp() * logp_MNC).sum(-1)
    certain_MN = (1 - entropy_MN / math.log(logits_MNC.shape[-1])).clamp(min=LEAST) * by_weights(logits_MNC, weights_M)
    return certain_MN / certain_MN.sum(0)


MIXTURES: dict[str, Mixture] = {"weights": by_weights, "certainty": by_certainty}


def mixture_weights(logits_MNC: Tensor, weights_M: Sequence[float], *, combine: str) -> Tensor:
    """Return the weight [M, N] of each teacher in each row, by the recipe's weights and the mixture ``combine``.

    Raises RecipeError for an unknown mixture, ModelError for weights that do not fit the teachers.
    """
    if combine not in MIXTURES:
        raise RecipeError(f"unknown ensemble mixture {combine!r}; choose one of {', '.join(sorted(MIXTURES))}")
    if len(weights_M) != len(logits_MNC) or not all(weight > 0 for weight in weights_M):
        raise ModelError(f"{len(logits_MNC)} teachers need as many weights greater than 0, not {list(weights_M)}")
    return MIXTURES[combine](logits_MNC, weights_M)


def mixed_distributions(logits_MNC: Tensor, weights_MN: Tensor, temperature: float) -> Tensor:
    """Return logits [N, C] that, divided by ``temperature``, give the mixture of the teachers' distributions softened
    at it. Raises RecipeError for an illegal temperature."""
    if not temperature > 0.0:
        raise RecipeError(f"temperature is {temperature}; it must be greater than 0, and 2 to 8 is usual")
    softened_MNC = (logits_MNC.double() / temperature).log_softmax(-1)
    return (temperature * torch.logsumexp(softened_MNC + weights_MN[..., None].log(), 0)).to(logits_MNC.dtype)


def mixed_values(values_MN1: Tensor, weights_MN: Tensor) -> Tensor:
    """Return the weighted mean [N, 1] of the teachers' values."""
    return (weights_MN[..., None] * values_MN1.double()).sum(0).to(values_MN1.dtype)
