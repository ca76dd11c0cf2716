"""A translator with Marian's embeddings, norms, feed-forward blocks and attention to the source, and a mixer in place
of each layer's attention to its own text; modules that both have bear Marian's names.

Papers: Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762; Wu et al. 2020, Lite Transformer with
Long-Short Range Attention, arXiv:2004.11886, whose translator keeps the attention to the source, too.
Shape letters: B batch, T tokens that can be read, L words that are new, D width.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import MarianMTModel
from transformers.models.marian.modeling_marian import MarianDecoder, MarianEncoder, MarianModel

from tasks.modeling.configuration import LimbeckSeq2SeqConfig
from tasks.modeling.mixing import DrawsMixers, Mixing


def replace_attention(stack: Any, config: Any, *, decoder: bool) -> None:
    """Give each layer of a stack its mixer, and a flat feed-forward block where the mixer has one."""
    for index, layer in enumerate(stack.layers):
        layer.self_attn = Mixing(config.of_stack(decoder=decoder), index, causal=decoder)
        if layer.self_attn.mixer.is_flat:
            layer.fc1, layer.fc2 = (nn.Linear(config.d_model, config.d_model) for _ in range(2))


class MixingEncoder(DrawsMixers, MarianEncoder):
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


class MixingDecoder(DrawsMixers, MarianDecoder):
    """The stack that writes: its mixers read the words before, its attention the source."""

    config_class = LimbeckSeq2SeqConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        replace_attention(self, config, decoder=True)
        self.post_init()

    def forward(self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, **named: Any) -> Any:
        """Return the states of the new words [B, L, D]. The mask is 1 for words that may be read [B, T]."""
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, mask_BT=attention_mask, **named)


class LimbeckSeq2SeqModel(DrawsMixers, MarianModel):
    """Both stacks without a head."""

    config_class = LimbeckSeq2SeqConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.encoder, self.decoder = MixingEncoder(config), MixingDecoder(config)
        self.post_init()


class LimbeckSeq2SeqForConditionalGeneration(DrawsMixers, MarianMTModel):
    """A translator: logits of each next word [B, L, V], as Marian's."""

    config_class = LimbeckSeq2SeqConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = LimbeckSeq2SeqModel(config)
        self.post_init()
