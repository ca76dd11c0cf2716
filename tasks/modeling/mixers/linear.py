"""Linear attention: with phi = elu + 1, a token reads phi(q) (sum phi(k) v^T) / (phi(q) sum phi(k)), so that the sums
are computed once for all tokens.

Paper: Katharopoulos et al. 2020, Transformers are RNNs, arXiv:2006.16236. Cost a layer: T * D * K.
Shape letters: B batch, T tokens, D width, H heads, K size of a head, F features.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from tasks.modeling.mixers.mixer import Mixer, joined_heads, split_heads

EPSILON = 1e-6


def linear_attention(
    query_BHTK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, mask_BT: Tensor, *, causal: bool = False
) -> Tensor:
    """Return the mean of values by products of elu + 1 of queries and keys [B, H, T, K]."""
    query, key = (F.elu(states) + 1 for states in (query_BHTK, key_BHTK))
    return read_by_features(query, kept_features(key, mask_BT), value_BHTK, epsilon=EPSILON, causal=causal)


def kept_features(features_BHTF: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the features of keys, 0 where there is padding."""
    return features_BHTF * mask_BT.to(features_BHTF.dtype)[:, None, :, None]


def read_by_features(
    query_BHTF: Tensor, key_BHTF: Tensor, value_BHTK: Tensor, *, epsilon: Tensor | float, causal: bool
) -> Tensor:
    """Return the mean of values by products of features [B, H, T, K], none of which is negative."""
    if causal:
        sums_BHTFK = (key_BHTF[..., None] * value_BHTK[..., None, :]).cumsum(2)
        read_BHTK = (query_BHTF[..., None, :] @ sums_BHTFK).squeeze(-2)
        total_BHT1 = (query_BHTF * key_BHTF.cumsum(2)).sum(-1, keepdim=True)
    else:
        read_BHTK = query_BHTF @ (key_BHTF.transpose(2, 3) @ value_BHTK)
        total_BHT1 = query_BHTF @ key_BHTF.sum(2)[..., None]
    return read_BHTK / (total_BHT1 + epsilon)


class LinearAttention(Mixer):
    """Linear attention of queries, keys and values."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        self.query, self.key, self.value = (nn.Linear(self.width, self.width) for _ in range(3))

    def forward(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states [B, T, D]."""
        query, key, value = (split_heads(part(states_BTD), self.heads) for part in (self.query, self.key, self.value))
        return joined_heads(linear_attention(query, key, value, mask_BT, causal=self.causal))
