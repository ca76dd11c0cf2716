"""The factorized dense Synthesizer: each token computes A numbers and C numbers, A * C >= N, and its logit for place n
is the product of number n mod A of the first and number n div A of the second.

Paper: Tay et al. 2021, arXiv:2005.00743, section 3.2.2; no code of it was published. The paper tiles both; here the
second is repeated instead, so that each pair of numbers stands for one place. Cost a layer: T * T * D, and fewer
parameters: K * (A + C) instead of K * N.
Shape letters: B batch, L tokens, P places, H heads, K size of a head, N longest input, A and C numbers of each kind.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from tasks.modeling.mixers.synthesizers.synthesizer import Synthesizer


def product_logits(query_BHLK: Tensor, near_KA: Tensor, far_KC: Tensor, tokens: int) -> Tensor:
    """Return logits for so many places [B, H, L, P]."""
    inner = query_BHLK.relu()
    near, far = inner @ near_KA, inner @ far_KC
    return (far[..., :, None] * near[..., None, :]).flatten(-2)[..., :tokens]


class DenseFactorized(Synthesizer):
    """Logits by products of two short lists of numbers."""

    called, reads_query = "synth-dense-factorized", True

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False, blend: bool = False) -> None:
        super().__init__(config, layer, causal=causal, blend=blend)
        size, near = self.width // self.heads, math.isqrt(self.longest - 1) + 1
        self.near_KA = nn.Parameter(torch.zeros(size, near))
        self.far_KC = nn.Parameter(torch.zeros(size, -(-self.longest // near)))

    def draw_weights(self, std: float) -> None:
        """Draw both maps."""
        from transformers import initialization

        for factor in (self.near_KA, self.far_KC):
            initialization.normal_(factor, std=len(factor) ** -0.5)

    def logits(self, query_BHLK: Tensor | None, places_BL: Tensor | None, tokens: int) -> Tensor:
        """Return the logits that the tokens compute."""
        assert query_BHLK is not None
        return product_logits(query_BHLK, self.near_KA, self.far_KC, tokens)
