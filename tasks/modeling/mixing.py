"""A mixer in the place of an attention of transformers: the same call, the same cache.

Shape letters: B batch, T tokens that can be read, L of them that are new, D width, R numbers that are kept of a token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import EncoderDecoderCache

from tasks.modeling.mixers.mixer import Mixer
from tasks.modeling.mixers.mixers import mixer_of


class Mixing(nn.Module):
    """A mixer and its output map, in the place of the attention of a text to itself."""

    def __init__(self, sizes: Any, layer: int, *, causal: bool) -> None:
        super().__init__()
        self.mixer, self.layer_idx = mixer_of(sizes, layer, causal=causal), layer
        self.has_map = self.mixer.has_output_map
        if self.has_map:
            self.out_proj = nn.Linear(sizes.hidden_size, sizes.hidden_size)

    def forward(
        self, hidden_states: Tensor, cache: Any = None, mask_BT: Tensor | None = None, **unused: Any
    ) -> tuple[Tensor, None]:
        """Return the mixed states of the new tokens [B, L, D], and no shares."""
        kept_BTR = self.mixer.kept(hidden_states)
        if cache is not None:
            kept_BTR = self.remembered(kept_BTR, cache)
        if mask_BT is None:
            mask_BT = torch.ones_like(kept_BTR[..., 0])
        mixed_BLD = self.mixer.read(hidden_states, kept_BTR, mask_BT)
        return self.out_proj(mixed_BLD) if self.has_map else mixed_BLD, None

    def remembered(self, new_BLR: Tensor, cache: Any) -> Tensor:
        """Return what is kept of all tokens so far [B, T, R], and remember that of the new ones: a half as keys of one
        head, the other as its values."""
        own: Any = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        halves = own.update(*(half[:, None] for half in new_BLR.tensor_split(2, -1)), self.layer_idx)
        return torch.cat([half.squeeze(1) for half in halves], -1)


class DrawsMixers:
    """Draws the weights of mixers that stand in no linear map, as the models of transformers draw theirs."""

    config: Any

    def _init_weights(self, module: nn.Module) -> None:
        own: Any = super()
        own._init_weights(module)
        if isinstance(module, Mixer):
            with torch.no_grad():
                module.draw_weights(getattr(self.config, "initializer_range", None) or self.config.init_std)
