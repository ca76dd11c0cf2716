"""Local attention: a text is cut into blocks of W tokens, and a token reads its own block, both neighbours and the
first token; the first token reads all. Where it is causal, the block before, and no token after itself.

Papers: Parmar et al. 2018, Image Transformer, arXiv:1802.05751 (blocks); Beltagy et al. 2020, Longformer,
arXiv:2004.05150 (a global first token). Cost a layer: 3 * T * W * D. A decoder keeps keys and values.
Shape letters: B batch, T tokens, L the last of them, D width, H heads, K size of a head, N blocks, W tokens of a block.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.modeling.mixers.mixer import QueriesKeysValues, joined_heads, masked_shares, places_in_texts, scaled_scores

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


def attention_from_first_token(
    query_BHTK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, mask_BT: Tensor, window: int
) -> Tensor:
    """Return causal local attention [B, H, T, K] by blocks that begin with each text, also where padding stands before
    it."""
    places_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    begin_B1 = mask_BT.to(torch.int64).argmax(1, keepdim=True)
    there_BT, back_BT = ((places_T + moved_B1) % len(places_T) for moved_B1 in (begin_B1, -begin_B1))
    query, key, value = (states_at(states, there_BT) for states in (query_BHTK, key_BHTK, value_BHTK))
    mixed = local_attention(query, key, value, mask_BT.gather(1, there_BT), window, causal=True)
    return states_at(mixed, back_BT)


def states_at(states_BHTK: Tensor, places_BT: Tensor) -> Tensor:
    """Return the states at these places [B, H, T, K]."""
    return states_BHTK.gather(2, places_BT[:, None, :, None].expand_as(states_BHTK))


def attention_of_last(query_BHLK: Tensor, key_BHTK: Tensor, value_BHTK: Tensor, mask_BT: Tensor, window: int) -> Tensor:
    """Return the same for the last tokens alone [B, H, L, K], to which the blocks are a mask."""
    places_BT = places_in_texts(mask_BT)
    blocks_BT = places_BT // window
    own_BL = blocks_BT[:, key_BHTK.shape[2] - query_BHLK.shape[2] :]
    seen_BLT = (blocks_BT[:, None] >= own_BL[..., None] - 1) | (places_BT == 0)[:, None]
    logits_BHLT = scaled_scores(query_BHLK, key_BHTK)
    logits_BHLT = logits_BHLT.masked_fill(~seen_BLT[:, None], torch.finfo(logits_BHLT.dtype).min)
    return masked_shares(logits_BHLT, mask_BT, causal=True) @ value_BHTK


class Local(QueriesKeysValues):
    """Queries, keys and values of neighbours."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        self.window = config.mixer_window or USUAL_WINDOW

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of the last tokens [B, L, D]."""
        query, key, value = self.by_heads(states_BLD, kept_BTR)
        if not self.causal:
            mixed = local_attention(query, key, value, mask_BT, self.window)
        # a graph reads whole texts and single tokens, and has one of both ways
        elif torch.compiler.is_exporting() or query.shape[2] < key.shape[2]:
            mixed = attention_of_last(query, key, value, mask_BT, self.window)
        else:
            mixed = attention_from_first_token(query, key, value, mask_BT, self.window)
        return joined_heads(mixed)
