"""Linear attention: with phi = elu + 1, a token reads phi(q) (sum phi(k) v^T) / (phi(q) sum phi(k)), so that the sums
are computed once for all tokens.

Paper: Katharopoulos et al. 2020, Transformers are RNNs, arXiv:2006.16236. Cost a layer: T * D * K. A decoder keeps keys
and values, as that of softmax does, and not their sums alone: so every part of a text can be taken back.
Shape letters: B batch, T tokens, L the last of them, D width, H heads, K size of a head, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.modeling.mixers.mixer import QueriesKeysValues, joined_heads

EPSILON = 1e-6


def linear_attention(
    query_BHLK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, mask_BT: Tensor, *, causal: bool = False
) -> Tensor:
    """Return the mean of values by products of elu + 1 of queries and keys [B, H, L, K]."""
    query, key = (F.elu(states) + 1 for states in (query_BHLK, key_BHTK))
    return read_by_features(query, kept_features(key, mask_BT), value_BHTK, epsilon=EPSILON, causal=causal)


def kept_features(features_BHTF: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the features of keys, 0 where there is padding."""
    return features_BHTF * mask_BT.to(features_BHTF.dtype)[:, None, :, None]


def read_by_features(
    query_BHLF: Tensor, key_BHTF: Tensor, value_BHTK: Tensor, *, epsilon: Tensor | float, causal: bool
) -> Tensor:
    """Return the mean of values by products of features [B, H, L, K], none of which is negative."""
    if causal:
        return read_before(query_BHLF, key_BHTF, value_BHTK, epsilon)
    read_BHTK = query_BHLF @ (key_BHTF.transpose(2, 3) @ value_BHTK)
    total_BHT1 = query_BHLF @ key_BHTF.sum(2)[..., None]
    return read_BHTK / (total_BHT1 + epsilon)


def read_before(query_BHLF: Tensor, key_BHTF: Tensor, value_BHTK: Tensor, epsilon: Tensor | float) -> Tensor:
    """Return the mean of values by products of features for the last tokens, each of which reads none after it: one sum
    of all tokens before them, to which theirs are added one by one."""
    before = key_BHTF.shape[2] - query_BHLF.shape[2]
    # by a mask and not cut off, since a graph has no product over no token
    is_before_T1 = (torch.arange(key_BHTF.shape[2], device=key_BHTF.device) < before).to(key_BHTF.dtype)[:, None]
    key_before = key_BHTF * is_before_T1
    key, value = key_BHTF[:, :, before:], value_BHTK[:, :, before:]
    sum_BHFK = key_before.transpose(2, 3) @ value_BHTK
    sums_BHLFK = sum_BHFK[:, :, None] + (key[..., None] * value[..., None, :]).cumsum(2)
    read_BHLK = (query_BHLF[..., None, :] @ sums_BHLFK).squeeze(-2)
    totals_BHLF = key_before.sum(2, keepdim=True) + key.cumsum(2)
    return read_BHLK / ((query_BHLF * totals_BHLF).sum(-1, keepdim=True) + epsilon)


class LinearAttention(QueriesKeysValues):
    """Linear attention of queries, keys and values."""

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of the last tokens [B, L, D]."""
        query, key, value = self.by_heads(states_BLD, kept_BTR)
        return joined_heads(linear_attention(query, key, value, mask_BT, causal=self.causal))
