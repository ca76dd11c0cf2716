"""Dynamic convolution: as the lightweight one, but each token computes its own shares: u = GLU(linear_1 x),
w_t = softmax(W u_t) for each head, y_tc = sum_k w_th(c)k u_(t+k-p)c.

Paper: Wu et al. 2019, arXiv:1901.10430. Cost a layer: T * (K * D + H * K * D). A decoder keeps u, and reads that of
the last K - 1 tokens. Shape letters: B batch, T tokens, L the last of them, R the L + K - 1 that are read for them, D
width, H heads, C channels of a head, K width of the convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.modeling.mixers.light import read_around, read_by_last, without_padding
from tasks.modeling.mixers.mixer import Mixer


def dynamic_convolution(states_BTD: Tensor, shares_BLHK: Tensor, *, causal: bool = False) -> Tensor:
    """Return the convolution of channels for the last tokens [B, L, D], each with the weights of its head at its
    place."""
    last, heads, kernel = shares_BLHK.shape[1:]
    around_BRHC = read_around(states_BTD, kernel, last, causal=causal).unflatten(-1, (heads, -1))
    # one place of the window after the other: all windows at once are K times as many numbers as there are states
    mixed_BLHC = around_BRHC[:, :last] * shares_BLHK[..., :1]
    for place in range(1, kernel):
        mixed_BLHC = torch.addcmul(mixed_BLHC, around_BRHC[:, place : place + last], shares_BLHK[..., place, None])
    return mixed_BLHC.flatten(2)


class Dynamic(Mixer):
    """A map with a gate, the map of the shares, and the convolution."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        self.kernel = config.mixer_kernels[layer]
        self.value = nn.Linear(self.width, 2 * self.width)
        self.shares = nn.Linear(self.width, self.heads * self.kernel, bias=False)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def kept(self, states_BLD: Tensor) -> Tensor:
        """Return the gated states [B, L, D], which the convolution reads."""
        return F.glu(self.value(states_BLD), -1)

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of the last tokens [B, L, D]."""
        gated_BLD = kept_BTR[:, kept_BTR.shape[1] - states_BLD.shape[1] :]
        shares_BLHK = self.shares(gated_BLD).unflatten(-1, (self.heads, self.kernel)).softmax(-1)
        if self.causal:
            kept_BTR, mask_BT = read_by_last(kept_BTR, mask_BT, states_BLD.shape[1], self.kernel)
        return dynamic_convolution(without_padding(kept_BTR, mask_BT), self.dropout(shares_BLHK), causal=self.causal)
