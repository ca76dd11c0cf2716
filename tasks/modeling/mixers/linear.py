"""Linear attention: with phi = elu + 1, a token reads phi(q) (sum phi(k) v^T) / (phi(q) sum phi(k)), so that the sums
are computed once for all tokens.

Paper: Katharopoulos et al. 2020, Transformers are RNNs, arXiv:2006.16236. Cost a layer: T * D * K. A decoder keeps keys
and values, as that of softmax does, and not their sums alone: so every part of a text can be taken back. A further
token then costs T * D, as with softmax, where the sums alone would make it D * K.
Shape letters: B batch, T tokens, L the last of them, D width, H heads, K size of a head, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.modeling.mixers.mixer import QueriesKeysValues, joined_heads, later_tokens

EPSILON = 1e-6
TOKENS_OF_A_BLOCK = 64
"""Tokens of a block in a causal text."""


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
    """Return the mean of values by products of features for the last tokens, each of which reads none after it. Blocks
    read each token of their own, and one sum of those before: neither T * T products nor a sum for each token. Few
    tokens behind others take products with all of them, as attention does: the sums of those before would cost more."""
    tokens, last = key_BHTF.shape[2], query_BHLF.shape[2]
    # the number of blocks would be fixed in a graph
    if torch.compiler.is_exporting() or is_cheaper_by_pairs(last, key_BHTF.shape[3], value_BHTK.shape[3]):
        products_BHLT = query_BHLF @ key_BHTF.transpose(2, 3)
        products_BHLT = products_BHLT.masked_fill(later_tokens(products_BHLT), 0.0)
        return products_BHLT @ value_BHTK / (products_BHLT.sum(-1, keepdim=True) + epsilon)
    ones_BHT1 = torch.ones_like(value_BHTK[..., :1])
    both = torch.cat([value_BHTK, ones_BHT1], -1)
    before, found = tokens - last, list[Tensor]()
    sum_BHFK = key_BHTF[:, :, :before].transpose(2, 3) @ both[:, :, :before]
    for start in range(0, last, TOKENS_OF_A_BLOCK):
        here = slice(start, start + TOKENS_OF_A_BLOCK)
        key, value = (each[:, :, before:][:, :, here] for each in (key_BHTF, both))
        query = query_BHLF[:, :, here]
        found.append((query @ key.transpose(2, 3)).tril() @ value + query @ sum_BHFK)
        sum_BHFK = sum_BHFK + key.transpose(2, 3) @ value
    read_BHLK = torch.cat(found, 2)
    return read_BHLK[..., :-1] / (read_BHLK[..., -1:] + epsilon)


def is_cheaper_by_pairs(last: int, features: int, size: int) -> bool:
    """Tell whether so many tokens cost less by a product with each token before them, F + K, than the sums over those
    do, F * K for each."""
    return last * (features + size) < features * size


class LinearAttention(QueriesKeysValues):
    """Linear attention of queries, keys and values."""

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of the last tokens [B, L, D]."""
        query, key, value = self.by_heads(states_BLD, kept_BTR)
        return joined_heads(linear_attention(query, key, value, mask_BT, causal=self.causal))
