"""Attention by softmax, the reference: softmax(Q K^T / sqrt(K)) V.

Paper: Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762. Cost a layer: T * T * D.
A decoder keeps keys and values. Shape letters: B batch, T tokens, L the last of them, D width, H heads, K size of a
head.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tasks.modeling.mixers.mixer import QueriesKeysValues, joined_heads, masked_shares, scaled_scores


def softmax_attention(
    query_BHLK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, mask_BT: Tensor, *, causal: bool = False
) -> Tensor:
    """Return the mean of values by shares of the scores [B, H, L, K]."""
    return masked_shares(scaled_scores(query_BHLK, key_BHTK), mask_BT, causal=causal) @ value_BHTK


class Softmax(QueriesKeysValues):
    """Queries, keys and values, as in BERT."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of the last tokens [B, L, D]."""
        query, key, value = self.by_heads(states_BLD, kept_BTR)
        shares_BHLT = self.dropout(masked_shares(scaled_scores(query, key), mask_BT, causal=self.causal))
        return joined_heads(shares_BHLT @ value)
