"""Linformer: keys and values of all places are projected to R rows, softmax(Q (E^T K)^T / sqrt(K)) F^T V, so that a
token reads R means instead of T tokens.

Paper: Wang et al. 2020, Linformer: Self-Attention with Linear Complexity, arXiv:2006.04768. Every layer has E and F of
its own, all heads share them; a text shorter than the longest one takes their first rows. Padding is set to 0 before
them (the reference knows none). It cannot be causal: a projected key has read the whole text. Cost a layer: T * R * D.
Shape letters: B batch, T tokens, D width, H heads, K size of a head, N longest input, R rows that are left.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tasks.modeling.mixers.light import without_padding
from tasks.modeling.mixers.mixer import QueriesKeysValues, joined_heads, require_fits, scaled_scores, split_heads

USUAL_KEYS = 128


def projected(states_BTD: Tensor, mask_BT: Tensor, projection_NR: Tensor) -> Tensor:
    """Return the projection of states along the text [B, R, D]."""
    return projection_NR[: states_BTD.shape[1]].T @ without_padding(states_BTD, mask_BT)


class Linformer(QueriesKeysValues):
    """Queries, keys and values, of which the last two are projected along the text. Raises ValueError where it should
    be causal."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        if causal:
            raise ValueError("linformer cannot be causal, because its keys have read the whole text; use linear")
        rank = min(config.mixer_rank or USUAL_KEYS, self.longest)
        self.of_keys, self.of_values = (nn.Parameter(torch.zeros(self.longest, rank)) for _ in range(2))
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def draw_weights(self, std: float) -> None:
        """Draw both projections, so that a projected row is about as long as a state."""
        from transformers import initialization

        for projection in (self.of_keys, self.of_values):
            initialization.normal_(projection, std=projection.shape[1] ** -0.5)

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of all tokens [B, T, D]. Raises ValueError for a longer text than it was built
        for."""
        require_fits(kept_BTR.shape[1], self.longest, "linformer")
        key, value = (
            split_heads(projected(part_BTD, mask_BT, projection), self.heads)
            for part_BTD, projection in zip(kept_BTR.chunk(2, -1), (self.of_keys, self.of_values), strict=True)
        )
        shares_BHTR = scaled_scores(split_heads(self.query(states_BLD), self.heads), key).softmax(-1)
        return joined_heads(self.dropout(shares_BHTR) @ value)
