"""A translator with Marian's embeddings, norms, feed-forward blocks and attention to the source, and a mixer in place
of each layer's attention to its own text; modules that both have bear Marian's names.

Papers: Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762; Wu et al. 2020, Lite Transformer with
Long-Short Range Attention, arXiv:2004.11886, whose translator keeps the attention to the source, too.
Shape letters: B batch, T tokens that can be read, L of them that are new, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import MarianMTModel
from transformers.cache_utils import EncoderDecoderCache
from transformers.models.marian.modeling_marian import MarianDecoder, MarianEncoder, MarianModel

from tasks.modeling.configuration import LimbeckSeq2SeqConfig
from tasks.modeling.mixers.mixer import Mixer
from tasks.modeling.mixers.mixers import mixer_of


class Mixing(nn.Module):
    """A mixer and its output map, in the place of Marian's attention of a text to itself."""

    def __init__(self, config: Any, layer: int, *, decoder: bool) -> None:
        super().__init__()
        self.mixer, self.layer_idx = mixer_of(config.of_stack(decoder=decoder), layer, causal=decoder), layer
        self.has_map = self.mixer.has_output_map
        if self.has_map:
            self.out_proj = nn.Linear(config.d_model, config.d_model)

    def forward(
        self, hidden_states: Tensor, cache: Any = None, mask_BT: Tensor | None = None, **unused: Any
    ) -> tuple[Tensor, None]:
        """Return the mixed states of the new tokens [B, L, D], and no shares.

        What is remembered of a word is its state below the mixer, one half as its key and the other as its value:
        that is half of what attention remembers, and each mixer can read it.
        """
        states_BTD = hidden_states if cache is None else self.remembered(hidden_states, cache)
        if mask_BT is None:
            mask_BT = torch.ones_like(states_BTD[..., 0])
        mixed_BTD = self.mixer(states_BTD, mask_BT)[:, states_BTD.shape[1] - hidden_states.shape[1] :]
        return self.out_proj(mixed_BTD) if self.has_map else mixed_BTD, None

    def remembered(self, new_BLD: Tensor, cache: Any) -> Tensor:
        """Return the states of all words so far [B, T, D], and remember the new ones."""
        own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        halves = own.update(*(half[:, None] for half in new_BLD.tensor_split(2, -1)), self.layer_idx)
        return torch.cat([half.squeeze(1) for half in halves], -1)


class DrawsMixers:
    """Draws the weights of mixers that stand in no linear map, as the models of transformers draw theirs."""

    config: Any

    def _init_weights(self, module: nn.Module) -> None:
        own: Any = super()
        own._init_weights(module)
        if isinstance(module, Mixer):
            with torch.no_grad():
                module.draw_weights(self.config.init_std)


def replace_attention(stack: Any, config: Any, *, decoder: bool) -> None:
    """Give each layer of a stack its mixer, and a flat feed-forward block where the mixer has one."""
    for index, layer in enumerate(stack.layers):
        layer.self_attn = Mixing(config, index, decoder=decoder)
        if layer.self_attn.mixer.is_flat:
            layer.fc1, layer.fc2 = (nn.Linear(config.d_model, config.d_model) for _ in range(2))


class MixingEncoder(DrawsMixers, MarianEncoder):  # type: ignore[misc]
    """The stack that reads the source."""

    config_class = LimbeckSeq2SeqConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        replace_attention(self, config, decoder=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **named: Any,
    ) -> Any:
        """Return the states of the source [B, T, D]. The mask is 1 for tokens [B, T], or a bias [B, 1, 1, T]."""
        mask_BT = attention_mask
        if mask_BT is not None and mask_BT.ndim == 4:
            mask_BT = (mask_BT[:, 0, 0] >= 0).to(mask_BT.dtype)
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            mask_BT=mask_BT,
            **named,
        )


class MixingDecoder(DrawsMixers, MarianDecoder):  # type: ignore[misc]
    """The stack that writes: its mixers read the words before, its attention the source."""

    config_class = LimbeckSeq2SeqConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        replace_attention(self, config, decoder=True)
        self.post_init()

    def forward(self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, **named: Any) -> Any:
        """Return the states of the new words [B, L, D]. The mask is 1 for words that may be read [B, T]."""
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, mask_BT=attention_mask, **named)


class LimbeckSeq2SeqModel(DrawsMixers, MarianModel):  # type: ignore[misc]
    """Both stacks without a head."""

    config_class = LimbeckSeq2SeqConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.encoder, self.decoder = MixingEncoder(config), MixingDecoder(config)
        self.post_init()


class LimbeckSeq2SeqForConditionalGeneration(DrawsMixers, MarianMTModel):  # type: ignore[misc]
    """A translator: logits of each next word [B, L, V], as Marian's."""

    config_class = LimbeckSeq2SeqConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = LimbeckSeq2SeqModel(config)
        self.post_init()
