"""Lightweight convolution: every channel is the mean of its neighbours by shares that are the same at all places and in
all channels of a head: y_tc = sum_k softmax(w_h(c))_k x_(t+k-p)c, with p = (K - 1) / 2, or K - 1 where it is causal.

Paper: Wu et al. 2019, Pay Less Attention with Lightweight and Dynamic Convolutions, arXiv:1901.10430. Its first map is
the value map here, its second one the output map of the block. Cost a layer: T * K * D. A decoder keeps what is behind
the first map, and reads that of the last K - 1 tokens. Padding is set to 0 there, so that no bias reaches a token.
Shape letters: B batch, T tokens, L the last of them, D width, H heads, K width of the convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.modeling.mixers.mixer import Mixer


def read_around(states_BTD: Tensor, kernel: int, last: int, *, causal: bool) -> Tensor:
    """Return what a convolution reads for the last tokens [B, L + K - 1, D]: zeros stand before and after a text."""
    before = kernel - 1 if causal else kernel // 2
    return F.pad(states_BTD, (0, 0, before, kernel - 1 - before))[:, states_BTD.shape[1] - last :]


def read_by_last(kept_BTR: Tensor, mask_BT: Tensor, last: int, kernel: int) -> tuple[Tensor, Tensor]:
    """Return what a causal convolution reads for the last tokens of all that is kept, and the mask of that: K - 1 more
    than those, so that a further word costs the same behind a long text."""
    most = last + kernel - 1
    return kept_BTR[:, -most:], mask_BT[:, -most:]


def without_padding(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return states that are 0 where there is padding."""
    return states_BTD * mask_BT.to(states_BTD.dtype)[..., None]


def light_convolution(
    states_BTD: Tensor, shares_HK: Tensor, *, causal: bool = False, last: int | None = None
) -> Tensor:
    """Return the convolution of channels, each with the weights of its head, for all tokens or the last [B, L, D]."""
    heads, kernel = shares_HK.shape
    tokens, width = states_BTD.shape[1:]
    weights_D1K = shares_HK.repeat_interleave(width // heads, 0)[:, None]
    read_BDT = read_around(states_BTD, kernel, tokens if last is None else last, causal=causal).transpose(1, 2)
    return F.conv1d(read_BDT, weights_D1K, groups=width).transpose(1, 2)


class Light(Mixer):
    """A map, and the convolution."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        self.value = nn.Linear(self.width, self.width)
        self.weight = nn.Parameter(torch.zeros(self.heads, config.mixer_kernels[layer]))
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def draw_weights(self, std: float) -> None:
        """Draw the logits of the shares."""
        from transformers import initialization

        initialization.normal_(self.weight, std=std)

    def kept(self, states_BLD: Tensor) -> Tensor:
        """Return what the convolution reads [B, L, D]."""
        values_BLD: Tensor = self.value(states_BLD)
        return values_BLD

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of the last tokens [B, L, D]."""
        shares_HK, last = self.dropout(self.weight.softmax(-1)), states_BLD.shape[1]
        if self.causal:
            kept_BTR, mask_BT = read_by_last(kept_BTR, mask_BT, last, shares_HK.shape[-1])
        values_BTD = without_padding(kept_BTR, mask_BT)
        return light_convolution(values_BTD, shares_HK, causal=self.causal, last=last)
