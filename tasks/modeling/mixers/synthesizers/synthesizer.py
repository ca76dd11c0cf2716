"""What the attentions of the Synthesizer share: logits of their own, softmax over them, and the mixture with those of
queries and keys: (1 - a) Q K^T / sqrt(K) + a R, where a is the sigmoid of one learned number that begins at 0.

Paper: Tay et al. 2021, Synthesizer: Rethinking Self-Attention for Transformer Models, arXiv:2005.00743. The reference
does not scale Q K^T, and folds that into how its maps are drawn; here it is scaled. Tables are for texts of at most N
tokens; a shorter text takes their first rows and columns. They save parameters and a product, not growth with length.
Shape letters: B batch, T tokens, D width, H heads, K size of a head, N longest input.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tasks.modeling.mixers.mixer import Mixer, joined_heads, masked_shares, require_fits, scaled_scores, split_heads


def blended(scores_BHTT: Tensor, logits_BHTT: Tensor, weight: Tensor) -> Tensor:
    """Return the mixture of scores and synthetic logits; half of each at weight 0."""
    share = weight.sigmoid()
    return (1 - share) * scores_BHTT + share * logits_BHTT


def synthetic_attention(logits_BHTT: Tensor, value_BHTK: Tensor, mask_BT: Tensor, *, causal: bool = False) -> Tensor:
    """Return the mean of values by the softmax of logits [B, H, T, K]."""
    return masked_shares(logits_BHTT, mask_BT, causal=causal) @ value_BHTK


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

    def logits(self, query_BHTK: Tensor | None, tokens: int) -> Tensor:
        """Return synthetic logits for a text of so many tokens [B or 1, H, T, T]."""
        raise NotImplementedError

    def forward(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states [B, T, D]. Raises ValueError for a longer text than it was built for."""
        tokens = states_BTD.shape[1]
        require_fits(tokens, self.longest, self.called)
        query = split_heads(self.query(states_BTD), self.heads) if self.blend or self.reads_query else None
        logits_BHTT = self.logits(query, tokens)
        if self.blend and query is not None:
            scores_BHTT = scaled_scores(query, split_heads(self.key(states_BTD), self.heads))
            logits_BHTT = blended(scores_BHTT, logits_BHTT, self.share)
        shares_BHTT = self.dropout(masked_shares(logits_BHTT, mask_BT, causal=self.causal))
        return joined_heads(shares_BHTT @ split_heads(self.value(states_BTD), self.heads))
