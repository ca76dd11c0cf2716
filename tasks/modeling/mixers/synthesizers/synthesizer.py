"""What the attentions of the Synthesizer share: logits of their own, softmax over them, and the mixture with those of
queries and keys: (1 - a) Q K^T / sqrt(K) + a R, where a is the sigmoid of one learned number that begins at 0.

Paper: Tay et al. 2021, Synthesizer: Rethinking Self-Attention for Transformer Models, arXiv:2005.00743. The reference
does not scale Q K^T, and folds that into how its maps are drawn; here it is scaled. Tables are for texts of at most N
tokens; a shorter text takes their first rows and columns. They save parameters and a product, not growth with length.
A decoder keeps values, in a mixture keys, too. Shape letters: B batch, T tokens, L the last of them, P as many places,
D width, H heads, K size of a head, N longest input.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tasks.modeling.mixers.mixer import (
    Mixer,
    joined_heads,
    masked_shares,
    places_in_texts,
    require_fits,
    scaled_scores,
    split_heads,
)


def blended(scores_BHLT: Tensor, logits_BHLT: Tensor, weight: Tensor) -> Tensor:
    """Return the mixture of scores and synthetic logits; half of each at weight 0."""
    share = weight.sigmoid()
    return (1 - share) * scores_BHLT + share * logits_BHLT


def synthetic_attention(logits_BHLT: Tensor, value_BHTK: Tensor, mask_BT: Tensor, *, causal: bool = False) -> Tensor:
    """Return the mean of values by the softmax of logits [B, H, L, K]."""
    return masked_shares(logits_BHLT, mask_BT, causal=causal) @ value_BHTK


def rows_at(table_HNC: Tensor, places_BL: Tensor | None, tokens: int) -> Tensor:
    """Return the rows of a table for the first places in order [1, H, P, C], or for those of tokens [B, H, L, C]."""
    return table_HNC[None, :, :tokens] if places_BL is None else table_HNC[:, places_BL].transpose(0, 1)


def columns_of_tokens(logits_BHLP: Tensor, places_BT: Tensor) -> Tensor:
    """Return the logits for places as those for tokens that stand at them [B, H, L, T]."""
    columns_BHLT = places_BT[:, None, None].expand(-1, *logits_BHLP.shape[1:3], -1)
    return logits_BHLP.gather(3, columns_BHLT)


class Synthesizer(Mixer):
    """Values, read by logits of its own; with ``blend`` mixed with those of queries and keys."""

    called: ClassVar[str]
    """Its name in a recipe."""
    reads_query: ClassVar[bool] = False
    """Whether its logits depend on the text."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False, blend: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        self.blend, self.value = blend, nn.Linear(self.width, self.width)
        if blend or self.reads_query:
            self.query = nn.Linear(self.width, self.width)
        if blend:
            self.key, self.share = nn.Linear(self.width, self.width), nn.Parameter(torch.zeros(()))
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def logits(self, query_BHLK: Tensor | None, places_BL: Tensor | None, tokens: int) -> Tensor:
        """Return synthetic logits for so many places: those of tokens at these places [B, H, L, P], or of the first
        ones in order [B or 1, H, P, P]."""
        raise NotImplementedError

    def kept(self, states_BLD: Tensor) -> Tensor:
        """Return values [B, L, D]; in a mixture behind keys [B, L, 2D]."""
        values_BLD: Tensor = self.value(states_BLD)
        return torch.cat([self.key(states_BLD), values_BLD], -1) if self.blend else values_BLD

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of the last tokens [B, L, D]. Raises ValueError for a longer text than it was built
        for."""
        require_fits(kept_BTR.shape[1], self.longest, self.called)
        *keys, value = (split_heads(part, self.heads) for part in kept_BTR.split(self.width, -1))
        query = split_heads(self.query(states_BLD), self.heads) if self.blend or self.reads_query else None
        logits_BHLT = self.logits_of_tokens(query, mask_BT, states_BLD.shape[1])
        if query is not None:
            for key in keys:
                logits_BHLT = blended(scaled_scores(query, key), logits_BHLT, self.share)
        return joined_heads(self.dropout(masked_shares(logits_BHLT, mask_BT, causal=self.causal)) @ value)

    def logits_of_tokens(self, query_BHLK: Tensor | None, mask_BT: Tensor, last: int) -> Tensor:
        """Return synthetic logits of the last tokens for all tokens [B or 1, H, L, T]. Causal ones count places from
        the first token of a text."""
        tokens = mask_BT.shape[1]
        if not self.causal:
            return self.logits(query_BHLK, None, tokens)
        places_BT = places_in_texts(mask_BT)
        return columns_of_tokens(self.logits(query_BHLK, places_BT[:, tokens - last :], tokens), places_BT)
