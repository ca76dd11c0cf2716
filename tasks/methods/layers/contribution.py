"""Layer contribution: a layer whose output points in the direction of its input contributes little, and may be dropped.

Paper: Sajjad et al. 2020, "On the Effect of Dropping Layers of Pre-trained Transformer Models", arXiv:2004.03844.
Shape letters in this file: B batch, T tokens, D width, L layers (there are L + 1 hidden states).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.errors import ModelError, RecipeError

TOKENS = ("cls", "last", "mean")


def layer_cosines(hidden_states: Sequence[Tensor], mask_BT: Tensor, *, token: str = "cls") -> Tensor:
    """Return for each layer the cosine of its input and output, averaged over the batch: a tensor [L]."""
    return cosines_BL(hidden_states, mask_BT, token=token).mean(dim=0)


def cosines_BL(hidden_states: Sequence[Tensor], mask_BT: Tensor, *, token: str = "cls") -> Tensor:
    """Return the cosine of each layer's input and output for each example, to be summed over batches.

    ``cls`` uses the first valid token, ``last`` the last, where XLNet keeps its summary, and ``mean`` averages the
    cosines of all valid tokens.
    """
    _require_states(hidden_states, mask_BT)
    per_layer = [_cosines_BT(before, after) for before, after in pairwise(hidden_states)]
    return token_means_BL(torch.stack(per_layer, dim=1), mask_BT, token=token)


def token_means_BL(values_BLT: Tensor, mask_BT: Tensor, *, token: str) -> Tensor:
    """Return the values of the first valid token (``cls``), the last (``last``), or their mean over all valid tokens
    (``mean``)."""
    if token not in TOKENS:
        raise RecipeError(f"unknown token {token!r} for layer contributions; choose one of {', '.join(TOKENS)}")
    weights_BT = {"cls": _first_valid, "last": _last_valid, "mean": Tensor.bool}[token](mask_BT)
    weights_B1T = weights_BT[:, None, :]
    return values_BLT.masked_fill(~weights_B1T, 0.0).sum(dim=-1) / weights_B1T.sum(dim=-1).clamp(min=1)


def _cosines_BT(before_BTD: Tensor, after_BTD: Tensor) -> Tensor:
    # Cosines of neighbouring layers differ in the third decimal, which half precision cannot represent.
    wide = torch.promote_types(before_BTD.dtype, torch.float32)
    return F.cosine_similarity(before_BTD.to(wide), after_BTD.to(wide), dim=-1)


def _first_valid(mask_BT: Tensor) -> Tensor:
    first_B1 = mask_BT.long().argmax(dim=1, keepdim=True)
    return torch.zeros_like(mask_BT, dtype=torch.bool).scatter(1, first_B1, True)


def _last_valid(mask_BT: Tensor) -> Tensor:
    return _first_valid(mask_BT.flip(1)).flip(1)


def _require_states(hidden_states: Sequence[Tensor], mask_BT: Tensor) -> None:
    if len(hidden_states) < 2 or any(states.shape[:2] != mask_BT.shape for states in hidden_states):
        raise ModelError(
            f"layer contributions need at least 2 hidden states of {tuple(mask_BT.shape)} [batch, tokens], "
            f"but got {[tuple(states.shape) for states in hidden_states]}; ask the model for all hidden states"
        )
