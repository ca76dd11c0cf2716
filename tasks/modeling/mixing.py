"""A mixer in the place of an attention of transformers: the same call, the same cache.

Shape letters: B batch, T tokens that can be read, L of them that are new, D width.
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
        """Return the mixed states of the new tokens [B, L, D], and no shares.

        What is remembered of a token is its state below the mixer, one half as its key and the other as its value:
        that is half of what attention remembers, and each mixer can read it.
        """
        states_BTD = hidden_states if cache is None else self.remembered(hidden_states, cache)
        mixed_BTD = self.mix(states_BTD, mask_BT)[:, states_BTD.shape[1] - hidden_states.shape[1] :]
        return self.out_proj(mixed_BTD) if self.has_map else mixed_BTD, None

    def mix(self, states_BTD: Tensor, mask_BT: Tensor | None) -> Tensor:
        """Return the mixed states of all tokens. Causal mixers count places from the first token of a text, also where
        padding stands before it."""
        if mask_BT is None:
            return self.mixer(states_BTD, torch.ones_like(states_BTD[..., 0]))
        if not self.mixer.causal:
            return self.mixer(states_BTD, mask_BT)
        places_T = torch.arange(states_BTD.shape[1], device=states_BTD.device)
        tokens = torch.ones_like(places_T).sum()  # as a tensor: a graph has no remainder by an open size
        begin_B1 = mask_BT.to(torch.int64).argmax(1, keepdim=True)
        there_BT, back_BT = (places_T + begin_B1) % tokens, (places_T - begin_B1) % tokens
        mixed_BTD = self.mixer(moved_states(states_BTD, there_BT), mask_BT.gather(1, there_BT))
        return moved_states(mixed_BTD, back_BT)

    def remembered(self, new_BLD: Tensor, cache: Any) -> Tensor:
        """Return the states of all tokens so far [B, T, D], and remember the new ones."""
        own: Any = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        halves = own.update(*(half[:, None] for half in new_BLD.tensor_split(2, -1)), self.layer_idx)
        return torch.cat([half.squeeze(1) for half in halves], -1)


def moved_states(states_BTD: Tensor, places_BT: Tensor) -> Tensor:
    """Return the states at these places [B, T, D]."""
    return states_BTD.gather(1, places_BT[..., None].expand_as(states_BTD))


class DrawsMixers:
    """Draws the weights of mixers that stand in no linear map, as the models of transformers draw theirs."""

    config: Any

    def _init_weights(self, module: nn.Module) -> None:
        own: Any = super()
        own._init_weights(module)
        if isinstance(module, Mixer):
            with torch.no_grad():
                module.draw_weights(getattr(self.config, "initializer_range", None) or self.config.init_std)
