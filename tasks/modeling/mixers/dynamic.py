"""Dynamic convolution: as the lightweight one, but each token computes its own shares: u = GLU(linear_1 x),
w_t = softmax(W u_t) for each head, y_tc = sum_k w_th(c)k u_(t+k-p)c.

Paper: Wu et al. 2019, arXiv:1901.10430. Cost a layer: T * (K * D + H * K * D). A decoder keeps the last K - 1 inputs.
Shape letters: B batch, T tokens, D width, H heads, K width of the convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.modeling.mixers.light import padded_around, without_padding
from tasks.modeling.mixers.mixer import Mixer


def dynamic_convolution(states_BTD: Tensor, shares_BTHK: Tensor, *, causal: bool = False) -> Tensor:
    """Return the convolution of channels [B, T, D], each with the weights of its head at its place."""
    heads, kernel = shares_BTHK.shape[2:]
    tokens = states_BTD.shape[1]
    padded = padded_around(states_BTD, kernel, causal=causal)
    places_TK = torch.arange(tokens, device=padded.device)[:, None] + torch.arange(kernel, device=padded.device)
    read_BTKD = padded[:, places_TK]
    read_BTHKC = read_BTKD.unflatten(-1, (heads, -1)).transpose(2, 3)
    return (shares_BTHK[..., None, :] @ read_BTHKC).flatten(2)


class Dynamic(Mixer):
    """A map with a gate, the map of the shares, and the convolution."""

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        self.kernel = config.mixer_kernels[layer]
        self.value = nn.Linear(self.width, 2 * self.width)
        self.shares = nn.Linear(self.width, self.heads * self.kernel, bias=False)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states [B, T, D]."""
        gated_BTD = F.glu(self.value(states_BTD), -1)
        shares_BTHK = self.shares(gated_BTD).unflatten(-1, (self.heads, self.kernel)).softmax(-1)
        return dynamic_convolution(without_padding(gated_BTD, mask_BT), self.dropout(shares_BTHK), causal=self.causal)
