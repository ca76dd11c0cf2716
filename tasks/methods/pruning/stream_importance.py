"""The importance of the dimensions of the residual stream, and of attention heads, from activations or weights.

Sources: first-order terms of each example, Michel et al. 2019, arXiv:1905.10650 (heads), and Molchanov et al. 2019,
arXiv:1906.10771; mean activations behind all norms, Muralidharan et al. 2024 (Minitron), arXiv:2407.14679.
Shape letters: B batch, T tokens, D width, H heads, C inner width of attention, N norms of the model, M other sides of
maps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def taylor_of_dimensions(states_NBTD: Sequence[Tensor], gradients_NBTD: Sequence[Tensor], mask_BT: Tensor) -> Tensor:
    """Return, per dimension, the sum over examples of the size of the first-order change of the loss if the dimension
    were 0 behind all norms."""
    real_BT1 = mask_BT[..., None]
    terms = [(own * its * real_BT1).sum(1) for own, its in zip(states_NBTD, gradients_NBTD, strict=True)]
    return torch.stack(terms).sum(0).abs().sum(0)


def activation_of_dimensions(
    states_NBTD: Sequence[Tensor], gradients_NBTD: Sequence[Tensor], mask_BT: Tensor
) -> Tensor:
    """Return, per dimension, the sum over norms and examples of its squared mean size over tokens; gradients do not
    matter."""
    real_BT1, tokens_B1 = mask_BT[..., None], mask_BT.sum(1, keepdim=True)
    return torch.stack([((one.abs() * real_BT1).sum(1) / tokens_B1).square().sum(0) for one in states_NBTD]).sum(0)


def taylor_of_heads(context_BTC: Tensor, gradients_BTC: Tensor, mask_BT: Tensor, heads: int) -> Tensor:
    """Return, per head, the sum over examples of the size of the first-order change of the loss without the head; this
    is the gradient of a factor before the head."""
    terms_BC = (context_BTC * gradients_BTC * mask_BT[..., None]).sum(1)
    return terms_BC.view(len(terms_BC), heads, -1).sum(2).abs().sum(0)


def activation_of_heads(context_BTC: Tensor, gradients_BTC: Tensor, mask_BT: Tensor, heads: int) -> Tensor:
    """Return, per head, the sum over examples and its numbers of their squared mean size over tokens; gradients do not
    matter."""
    means_BC = (context_BTC.abs() * mask_BT[..., None]).sum(1) / mask_BT.sum(1, keepdim=True)
    return means_BC.square().sum(0).view(heads, -1).sum(1)


def norms_of_dimensions(read_MD: Tensor, written_DM: Tensor) -> Tensor:
    """Return, per dimension, the norm of all weights that read it and all that write it."""
    return (read_MD.square().sum(0) + written_DM.square().sum(1)).sqrt()


def norms_of_heads(values_CD: Tensor, output_DC: Tensor, heads: int) -> Tensor:
    """Return, per head, the product of the norms of its weights to values and of its weights of the output."""
    incoming_H = values_CD.reshape(heads, -1).norm(dim=1)
    return incoming_H * output_DC.T.reshape(heads, -1).norm(dim=1)


OF_STREAM = {"taylor": taylor_of_dimensions, "activation": activation_of_dimensions}
"""Importances of dimensions that are measured on rows, by name."""
OF_HEADS = {"taylor": taylor_of_heads, "activation": activation_of_heads}
"""Importances of heads that are measured on rows, by name."""
