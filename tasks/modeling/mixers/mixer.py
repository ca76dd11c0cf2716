"""The interface of a mixer, and the parts that several have: heads, and shares of the tokens that may be read.

Shape letters: B batch, T tokens, D width, H heads, K size of a head, N longest input.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Mixer(nn.Module):
    """Lets the tokens of a text read each other; padding is read by none. ``layer`` counts from 0.

    With ``causal``, a token reads none after it.
    """

    has_output_map: ClassVar[bool] = True
    """Whether a linear map over all channels follows."""
    is_flat: ClassVar[bool] = False
    """Whether the feed-forward block of its layer is as wide inside as outside."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__()
        self.causal, self.heads, self.width = causal, config.num_attention_heads, config.hidden_size
        self.longest = config.max_position_embeddings
        if self.width % self.heads:
            raise ValueError(f"width {self.width} does not divide by {self.heads} heads; choose heads that divide it")

    def forward(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states [B, T, D]; ``mask_BT`` is 1 for tokens and 0 for padding."""
        raise NotImplementedError

    def draw_weights(self, std: float) -> None:
        """Draw the weights that stand in no linear map."""


def split_heads(states_BTD: Tensor, heads: int) -> Tensor:
    """Return states by head [B, H, T, K]."""
    return states_BTD.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined_heads(states_BHTK: Tensor) -> Tensor:
    """Return states of all heads side by side [B, T, D]."""
    return states_BHTK.transpose(1, 2).flatten(2)


def scaled_scores(query_BHTK: Tensor, key_BHTK: Tensor) -> Tensor:
    """Return QK^T / sqrt(K) [B, H, T, T]."""
    return query_BHTK @ key_BHTK.transpose(2, 3) / math.sqrt(query_BHTK.shape[-1])


def masked_shares(logits_BHTT: Tensor, mask_BT: Tensor, *, causal: bool) -> Tensor:
    """Return the softmax of logits over the tokens that may be read."""
    lowest = torch.finfo(logits_BHTT.dtype).min
    hidden_BT = 1.0 - mask_BT.to(logits_BHTT.dtype)
    logits_BHTT = logits_BHTT + hidden_BT[:, None, None, :] * lowest
    if causal:
        later_TT = torch.ones_like(logits_BHTT[0, 0], dtype=torch.bool).triu(1)
        logits_BHTT = logits_BHTT.masked_fill(later_TT, lowest)
    return logits_BHTT.softmax(-1)


def require_fits(tokens: int, longest: int, mixer: str) -> None:
    """Raise ValueError for an input that is longer than a mixer of fixed size."""
    # not where a graph is traced: its sizes have bounds of their own
    if not torch.compiler.is_exporting() and tokens > longest:
        raise ValueError(
            f"the input has {tokens} tokens, and {mixer} was built for at most {longest}; truncate the text to "
            f"{longest} tokens (max_length={longest}), or build the model with more positions"
        )
