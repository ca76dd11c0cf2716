"""Local attention: a text is cut into blocks of W tokens, and a token reads its own block, both neighbours and the
first token; the first token reads all. Where it is causal, the block before, and no token after itself.

Papers: Parmar et al. 2018, Image Transformer, arXiv:1802.05751 (blocks); Beltagy et al. 2020, Longformer,
arXiv:2004.05150 (a global first token). Cost a layer: 3 * T * W * D.
Shape letters: B batch, T tokens, D width, H heads, K size of a head, N blocks, W tokens of a block.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.modeling.mixers.mixer import Mixer, joined_heads, masked_shares, scaled_scores, split_heads

USUAL_WINDOW = 64


def with_neighbours(states_BHTK: Tensor, blocks: int, window: int) -> Tensor:
    """Return each block with the one before and the one after it [B, H, N, 3W, K], 0 beyond the text."""
    tokens = states_BHTK.shape[2]
    around = F.pad(states_BHTK, (0, 0, window, (blocks + 1) * window - tokens))
    cut = around.unflatten(2, (blocks + 2, window))
    return torch.cat([cut[:, :, :-2], cut[:, :, 1:-1], cut[:, :, 2:]], 3)


def seen_by_blocks(mask_BT: Tensor, blocks: int, window: int, *, causal: bool) -> Tensor:
    """Return which of a block's own tokens and neighbours each of its tokens reads [B, 1, N, W, 3W], as 1 and 0; the
    first token of the text is not among them, because all read it in another way."""
    later_T = (torch.arange(mask_BT.shape[1], device=mask_BT.device) > 0).to(mask_BT.dtype)
    seen = with_neighbours((mask_BT * later_T)[:, None, :, None], blocks, window).squeeze(-1)[..., None, :]
    if causal:
        own, other = (torch.arange(size, device=mask_BT.device) for size in (window, 3 * window))
        seen = seen * (other[None, :] <= own[:, None] + window).to(seen.dtype)
    return seen


def local_attention(
    query_BHTK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, mask_BT: Tensor, window: int, *, causal: bool = False
) -> Tensor:
    """Return the mean of values by shares of the scores [B, H, T, K]."""
    tokens = query_BHTK.shape[2]
    blocks = (tokens + window - 1) // window
    query = F.pad(query_BHTK, (0, 0, 0, blocks * window - tokens)).unflatten(2, (blocks, window))
    near_key, near_value = (with_neighbours(states, blocks, window) for states in (key_BHTK, value_BHTK))
    scale = query_BHTK.shape[-1] ** -0.5
    near = query @ near_key.transpose(-1, -2) * scale
    seen = seen_by_blocks(mask_BT.to(near.dtype), blocks, window, causal=causal)
    near = near + (1.0 - seen) * torch.finfo(near.dtype).min
    first = query @ key_BHTK[:, :, None, :1].transpose(-1, -2) * scale
    shares = torch.cat([first, near], -1).softmax(-1)
    read = shares[..., 1:] @ near_value + shares[..., :1] * value_BHTK[:, :, None, :1]
    others = read.flatten(2, 3)[:, :, 1:tokens]
    whole = masked_shares(scaled_scores(query_BHTK[:, :, :1], key_BHTK), mask_BT, causal=False) @ value_BHTK
    return torch.cat([value_BHTK[:, :, :1] if causal else whole, others], 2)


class Local(Mixer):
    """Queries, keys and values of neighbours."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        self.query, self.key, self.value = (nn.Linear(self.width, self.width) for _ in range(3))
        self.window = config.mixer_window or USUAL_WINDOW

    def forward(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states [B, T, D]."""
        query, key, value = (split_heads(part(states_BTD), self.heads) for part in (self.query, self.key, self.value))
        return joined_heads(local_attention(query, key, value, mask_BT, self.window, causal=self.causal))
