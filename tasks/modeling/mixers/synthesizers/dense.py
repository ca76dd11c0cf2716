"""The dense Synthesizer: each token computes its logits for all places by itself, relu(x W1_h) W2, W2 [K, N]; heads
share W2, as in the published code.

Paper: Tay et al. 2021, arXiv:2005.00743, section 3.1. W1 is the query map here, with a bias. Cost a layer: T * T * D.
Shape letters: B batch, L tokens, P places, H heads, K size of a head, N longest input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tasks.modeling.mixers.synthesizers.synthesizer import Synthesizer


def dense_logits(query_BHLK: Tensor, map_KN: Tensor, tokens: int) -> Tensor:
    """Return logits for so many places [B, H, L, P]."""
    return query_BHLK.relu() @ map_KN[:, :tokens]


class Dense(Synthesizer):
    """Logits by two maps."""

    called, reads_query = "synth-dense", True

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False, blend: bool = False) -> None:
        super().__init__(config, layer, causal=causal, blend=blend)
        self.map_KN = nn.Parameter(torch.zeros(self.width // self.heads, self.longest))

    def draw_weights(self, std: float) -> None:
        """Draw the second map."""
        from transformers import initialization

        initialization.normal_(self.map_KN, std=len(self.map_KN) ** -0.5)

    def logits(self, query_BHLK: Tensor | None, places_BL: Tensor | None, tokens: int) -> Tensor:
        """Return the logits that the tokens compute."""
        assert query_BHLK is not None
        return dense_logits(query_BHLK, self.map_KN, tokens)
