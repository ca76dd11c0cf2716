"""Long-short range attention: half of the channels are read by softmax attention, the other half by a convolution, each
with an output map of its own; both are put side by side. The feed-forward block is flat: as wide inside as outside.

Paper: Wu et al. 2020, Lite Transformer with Long-Short Range Attention, arXiv:2004.11886. Cost a layer: half of both.
In the reference, padding is set to 0 before the first map of the convolution, whose bias then reaches the last tokens;
here it is set to 0 behind it. A decoder keeps what both halves keep: 3/2 D numbers of a token.
Shape letters: B batch, T tokens, L the last of them, D width.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tasks.modeling.mixers.dynamic import Dynamic
from tasks.modeling.mixers.light import Light
from tasks.modeling.mixers.mixer import Mixer
from tasks.modeling.mixers.softmax import Softmax


class Lsra(Mixer):
    """Attention of the first half of the channels, and lightweight convolution of the second."""

    has_output_map = False
    is_flat = True
    convolution: ClassVar[type[Mixer]] = Light

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False) -> None:
        super().__init__(config, layer, causal=causal)
        if self.width % 2 or self.heads % 2:
            raise ValueError(
                f"lsra divides {self.width} channels and {self.heads} heads into halves; give it even numbers of both"
            )
        half = copy.copy(config)
        half.hidden_size, half.num_attention_heads = self.width // 2, self.heads // 2
        self.attention, self.short = (kind(half, layer, causal=causal) for kind in (Softmax, self.convolution))
        self.attention_output, self.short_output = (nn.Linear(self.width // 2, self.width // 2) for _ in range(2))

    def kept(self, states_BLD: Tensor) -> Tensor:
        """Return what both halves keep [B, L, D + D / 2]."""
        far, near = states_BLD.chunk(2, -1)
        return torch.cat([self.attention.kept(far), self.short.kept(near)], -1)

    def read(self, states_BLD: Tensor, kept_BTR: Tensor, mask_BT: Tensor) -> Tensor:
        """Return the mixed states of the last tokens [B, L, D]."""
        far, near = states_BLD.chunk(2, -1)
        far_kept, near_kept = kept_BTR.split([self.width, self.width // 2], -1)
        return torch.cat(
            [
                self.attention_output(self.attention.read(far, far_kept, mask_BT)),
                self.short_output(self.short.read(near, near_kept, mask_BT)),
            ],
            -1,
        )


class DynamicLsra(Lsra):
    """Attention of the first half of the channels, and dynamic convolution of the second."""

    convolution = Dynamic
