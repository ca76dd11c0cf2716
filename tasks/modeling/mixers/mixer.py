"""The interface of a mixer, and the parts that several have: heads, and shares of the tokens that may be read.

A text can be read in parts: ``kept`` is what later tokens read of a token, and ``read`` gives the mixed states of the
last tokens, from what is kept of all. Shape letters: B batch, T tokens, L the last of them, D width, H heads, K size of
a head, R numbers that are kept of a token, N longest input.
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
        return self.read(states_BTD, self.kept(states_BTD), mask_BT)

    def kept(self, states_BLD: Tensor) -> Tensor:
        """Return what other tokens read of these [B, L, R]."""
        raise NotImplementedError

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of the last tokens [B, L, D]; mixers that are not causal read all tokens at once."""
        raise NotImplementedError

    def draw_weights(self, std: float) -> None:
        """Draw the weights that stand in no linear map."""


class QueriesKeysValues(Mixer):
    """A mixer with a map for queries, keys and values; keys and values are kept."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        self.query, self.key, self.value = (nn.Linear(self.width, self.width) for _ in range(3))

    def kept(self, states_BLD: Tensor) -> Tensor:
        """Return keys and values side by side [B, L, 2D]."""
        return torch.cat([self.key(states_BLD), self.value(states_BLD)], -1)

    def by_heads(self, states_BLD: Tensor, kept_BTR: Tensor) -> list[Tensor]:
        """Return queries [B, H, L, K], keys and values [B, H, T, K]."""
        return [split_heads(part, self.heads) for part in (self.query(states_BLD), *kept_BTR.chunk(2, -1))]


def split_heads(states_BTD: Tensor, heads: int) -> Tensor:
    """Return states by head [B, H, T, K]."""
    return states_BTD.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined_heads(states_BHTK: Tensor) -> Tensor:
    """Return states of all heads side by side [B, T, D]."""
    return states_BHTK.transpose(1, 2).flatten(2)


def scaled_scores(query_BHLK: Tensor, key_BHTK: Tensor) -> Tensor:
    """Return QK^T / sqrt(K) [B, H, L, T]."""
    return query_BHLK @ key_BHTK.transpose(2, 3) / math.sqrt(query_BHLK.shape[-1])


def masked_shares(logits_BHLT: Tensor, mask_BT: Tensor, *, causal: bool) -> Tensor:
    """Return the softmax of logits of the last tokens over the tokens that may be read."""
    lowest = torch.finfo(logits_BHLT.dtype).min
    hidden_BT = 1.0 - mask_BT.to(logits_BHLT.dtype)
    logits_BHLT = logits_BHLT + hidden_BT[:, None, None, :] * lowest
    if causal:
        logits_BHLT = logits_BHLT.masked_fill(later_tokens(logits_BHLT), lowest)
    return logits_BHLT.softmax(-1)


def later_tokens(logits_BHLT: Tensor) -> Tensor:
    """Return which tokens come after each of the last ones [L, T]."""
    last, tokens = logits_BHLT.shape[-2:]
    places_T = torch.arange(tokens, device=logits_BHLT.device)
    return places_T > places_T[tokens - last :, None]


def places_in_texts(mask_BT: Tensor) -> Tensor:
    """Return the place of each token in its text [B, T], counted from 0, also where padding stands before it."""
    places_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    return (places_T - mask_BT.to(torch.int64).argmax(1, keepdim=True)).clamp(min=0)


def require_fits(tokens: int, longest: int, mixer: str) -> None:
    """Raise ValueError for an input that is longer than a mixer of fixed size."""
    # not where a graph is traced: its sizes have bounds of their own
    if not torch.compiler.is_exporting() and tokens > longest:
        raise ValueError(
            f"the input has {tokens} tokens, and {mixer} was built for at most {longest}; truncate the text to "
            f"{longest} tokens (max_length={longest}), or build the model with more positions"
        )
