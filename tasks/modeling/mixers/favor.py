"""FAVOR+: softmax attention approximated by positive random features,
phi(x) = m^-1/2 (exp(P x K^-1/4 - |x|^2 / (2 sqrt K) - c) + 1e-4), then as linear attention.

Paper: Choromanski et al. 2021, Rethinking Attention with Performers, arXiv:2009.14794. The m rows of P are orthogonal
in blocks and as long as Gaussian vectors are; by default m = K ln K. P is saved with the model. It is drawn once, and
not anew while the model learns. c, the largest exponent of a query, or of all keys of a head, cancels but for 1e-4;
padding has no part in it. Cost a layer: T * D * m.
Shape letters: B batch, T tokens, D width, H heads, K size of a head, F features.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tasks.modeling.mixers.linear import EPSILON, kept_features, read_by_features
from tasks.modeling.mixers.mixer import QueriesKeysValues, joined_heads

FLOOR = 1e-4
"""Added to every feature, so that no weight vanishes."""


def positive_features(states_BHTK: Tensor, directions_FK: Tensor, mask_BT: Tensor | None = None) -> Tensor:
    """Return the features [B, H, T, F] of queries, or with a mask those of keys."""
    size = states_BHTK.shape[-1]
    exponents_BHTF = states_BHTK @ directions_FK.T * size**-0.25
    length_BHT1 = states_BHTK.square().sum(-1, keepdim=True) / (2 * math.sqrt(size))
    if mask_BT is None:
        largest = exponents_BHTF.detach().amax(-1, keepdim=True)
    else:
        hidden_BT = 1.0 - mask_BT.to(exponents_BHTF.dtype)
        shown = exponents_BHTF.detach() + hidden_BT[:, None, :, None] * torch.finfo(exponents_BHTF.dtype).min
        largest = shown.amax((-1, -2), keepdim=True)
        # a padded key may exceed the largest of the others; its features are set to 0 behind
        exponents_BHTF = torch.where(mask_BT.bool()[:, None, :, None], exponents_BHTF, largest)
    return ((exponents_BHTF - length_BHT1 - largest).exp() + FLOOR) / math.sqrt(len(directions_FK))


def favor_attention(
    query_BHTK: Tensor,
    key_BHTK: Tensor,
    value_BHTK: Tensor,
    directions_FK: Tensor,
    mask_BT: Tensor,
    *,
    causal: bool = False,
) -> Tensor:
    """Return the mean of values by products of features [B, H, T, K]."""
    query = positive_features(query_BHTK, directions_FK)
    key = kept_features(positive_features(key_BHTK, directions_FK, mask_BT), mask_BT)
    # as in the reference: none is added below where the text is read as a whole, and to each sum of keys where not
    epsilon = EPSILON * query.sum(-1, keepdim=True) if causal else 0.0
    return read_by_features(query, key, value_BHTK, epsilon=epsilon, causal=causal)


def drawn_directions(features: int, size: int) -> Tensor:
    """Return directions [F, K], orthogonal in blocks of K, as long as Gaussian vectors."""
    blocks = [torch.linalg.qr(torch.randn(size, size))[0].T for _ in range(-(-features // size))]
    return torch.cat(blocks)[:features] * torch.randn(features, size).norm(dim=1, keepdim=True)


class Favor(QueriesKeysValues):
    """Queries, keys and values by random features, which all heads share."""

    directions_FK: Tensor

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        size = self.width // self.heads
        features = config.mixer_features or max(1, round(size * math.log(size)))
        self.register_buffer("directions_FK", torch.zeros(features, size))

    def draw_weights(self, std: float) -> None:
        """Draw the directions, which have a scale of their own."""
        from transformers import initialization

        initialization.copy_(self.directions_FK, drawn_directions(*self.directions_FK.shape))

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of all tokens [B, T, D]."""
        query, key, value = self.by_heads(states_BLD, kept_BTR)
        return joined_heads(favor_attention(query, key, value, self.directions_FK, mask_BT, causal=self.causal))
