"""The factorized random Synthesizer: the table of logits is a product of two narrow ones, R_h = A_h B_h^T.

Paper: Tay et al. 2021, arXiv:2005.00743, section 3.2.1, with 8 columns each. The published code multiplies both place
by place, so that all queries share one row; this is the paper's form. Cost a layer: T * T * (D + H * F).
Shape letters: B batch, L tokens, P places, H heads, N longest input, F columns of a factor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tasks.modeling.mixers.synthesizers.synthesizer import Synthesizer, rows_at

FACTOR_COLUMNS = 8


def factorized_logits(left_HNF: Tensor, right_HNF: Tensor, tokens: int, places_BL: Tensor | None = None) -> Tensor:
    """Return the product of two factors for so many places [1, H, P, P], or its rows of tokens at some [B, H, L, P]."""
    return rows_at(left_HNF, places_BL, tokens) @ right_HNF[:, :tokens].transpose(1, 2)


class RandomFactorized(Synthesizer):
    """Two learned factors."""

    called = "synth-random-factorized"

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False, blend: bool = False) -> None:
        super().__init__(config, layer, causal=causal, blend=blend)
        rank = config.mixer_rank or FACTOR_COLUMNS
        self.left, self.right = (nn.Parameter(torch.zeros(self.heads, self.longest, rank)) for _ in range(2))

    def draw_weights(self, std: float) -> None:
        """Draw both factors, so that a logit has a deviation of about 1."""
        from transformers import initialization

        for factor in (self.left, self.right):
            initialization.normal_(factor, std=factor.shape[-1] ** -0.25)

    def logits(self, query_BHLK: Tensor | None, places_BL: Tensor | None, tokens: int) -> Tensor:
        """Return the product's part."""
        return factorized_logits(self.left, self.right, tokens, places_BL)
