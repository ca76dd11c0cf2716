"""The importance of the neurons of a feed-forward block, from its activations or its weights.

Sources: first-order terms of each example, Molchanov et al. 2019, arXiv:1906.10771, of Michel et al. 2019,
arXiv:1905.10650; mean activations, Muralidharan et al. 2024 (Minitron), arXiv:2407.14679.
The terms are summed per example: within a batch, those of different examples would cancel.
Shape letters: B batch, T tokens, F neurons, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

OfBatch = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps activations [B, T, F], their gradients [B, T, F], and the mask of real tokens [B, T] to the sum over the
examples [F]."""
OfWeights = Callable[[Tensor, Tensor, torch.Generator | None], Tensor]
"""Maps the weights of the first map [F, D] and of the second [D, F] to an importance [F], perhaps by drawing."""


def taylor_terms(activations_BTF: Tensor, gradients_BTF: Tensor, mask_BT: Tensor) -> Tensor:
    """Return, per neuron, the sum over examples of the size of the first-order change of the loss if the neuron were
    removed: the sum over tokens of activation times gradient."""
    terms_BF = (activations_BTF * gradients_BTF * mask_BT[..., None]).sum(1)
    return terms_BF.abs().sum(0)


def mean_activations(activations_BTF: Tensor, gradients_BTF: Tensor, mask_BT: Tensor) -> Tensor:
    """Return, per neuron, the sum over examples of the squared mean of its activation over tokens; gradients do not
    matter.

    The mean is of activations with their sign, where Minitron's code, and ours of dimensions and heads, takes that of
    their sizes: a neuron that is now above and now below 0 counts less here. Of GELU, whose activations are hardly ever
    far below 0, the two are alike.
    """
    means_BF = (activations_BTF * mask_BT[..., None]).sum(1) / mask_BT.sum(1, keepdim=True)
    return means_BF.square().sum(0)


def norms_of_weights(first_FD: Tensor, second_DF: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return, per neuron, the product of the norms of its incoming and its outgoing weights."""
    return first_FD.norm(dim=1) * second_DF.norm(dim=0)


def drawn(first_FD: Tensor, second_DF: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return a random importance: the control that every other importance has to beat."""
    return torch.rand(len(first_FD), generator=generator)


OF_ROWS: dict[str, OfBatch] = {"taylor": taylor_terms, "activation": mean_activations}
"""Importances that are measured on rows, by name."""
OF_WEIGHTS: dict[str, OfWeights] = {"magnitude": norms_of_weights, "random": drawn}
"""Importances that need no rows, by name."""


def most_important(importance_F: Tensor, count: int) -> list[int]:
    """Return the ``count`` neurons of largest importance, in their old order; of equals, the first ones."""
    order_F = torch.argsort(importance_F.double(), descending=True, stable=True)
    return sorted(int(neuron) for neuron in order_F[:count])
