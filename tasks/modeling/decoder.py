"""A language model with GPT-2's embeddings, norms and feed-forward blocks, and a mixer in place of each layer's
attention; modules that both have bear GPT-2's names.

Paper: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". Shape letters: B batch, T tokens, L
of them that are new, V vocabulary.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import GPT2LMHeadModel, GPT2Model
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

from tasks.modeling.configuration import LimbeckDecoderConfig
from tasks.modeling.mixing import DrawsMixers, Mixing


class LimbeckDecoderModel(DrawsMixers, GPT2Model):
    """The layers without a head."""

    config_class = LimbeckDecoderConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for index, block in enumerate(self.h):
            block.attn = Mixing(config.of_mixers(), index, causal=True)
            if block.attn.mixer.is_flat:
                block.mlp = GPT2MLP(config.hidden_size, config)
        self.post_init()

    def forward(self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, **named: Any) -> Any:
        """Return the states of the new tokens. The mask is 1 for tokens that may be read, also remembered ones [B,
        T]."""
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, mask_BT=attention_mask, **named)


class LimbeckDecoderForCausalLM(DrawsMixers, GPT2LMHeadModel):
    """A language model: logits of each next token [B, L, V], as GPT-2's."""

    config_class = LimbeckDecoderConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.transformer = LimbeckDecoderModel(config)
        self.post_init()
