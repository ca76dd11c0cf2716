"""Attention by softmax, the reference: softmax(Q K^T / sqrt(K)) V.

Paper: Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762. Cost a layer: T * T * D.
Shape letters: B batch, T tokens, D width, H heads, K size of a head.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tasks.modeling.mixers.mixer import Mixer, joined_heads, masked_shares, scaled_scores, split_heads


def softmax_attention(
    query_BHTK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, mask_BT: Tensor, *, causal: bool = False
) -> Tensor:
    """Return the mean of values by shares of the scores [B, H, T, K]."""
    return masked_shares(scaled_scores(query_BHTK, key_BHTK), mask_BT, causal=causal) @ value_BHTK


class Softmax(Mixer):
    """Queries, keys and values, as in BERT."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        self.query, self.key, self.value = (nn.Linear(self.width, self.width) for _ in range(3))
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states [B, T, D]."""
        query, key, value = (split_heads(part(states_BTD), self.heads) for part in (self.query, self.key, self.value))
        shares_BHTT = self.dropout(masked_shares(scaled_scores(query, key), mask_BT, causal=self.causal))
        return joined_heads(shares_BHTT @ value)
