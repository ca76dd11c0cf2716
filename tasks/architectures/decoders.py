"""Decoders: models that read a text from left to right and predict its next token, and those with a second stack that
reads another text first.

GPT-2: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". Llama: Touvron et al. 2023,
arXiv:2302.13971; Qwen3, Mistral and SmolLM3 have its layout. Their hidden states and outputs can be read. A layer
counts its own keys and values among those of a cache by its number, which follows the layers that stay.

With an encoder: BART, Lewis et al. 2020, arXiv:1910.13461; Marian, Junczys-Dowmunt et al. 2018, arXiv:1804.00344, has
its layout; T5, Raffel et al. 2020, arXiv:1910.10683. Layers of a smaller stack are evenly spread ones of the larger
(Shleifer and Rush 2020, "Pre-trained Summarization Distillation", arXiv:2010.13002).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tasks.architectures.architecture import HIDDEN, Architecture, unchanged


def decoder_as_encoder(config: Any, kept: Sequence[int]) -> None:
    """Give the decoder's blocks the heads and the inner width of the encoder's."""
    config.decoder_attention_heads = config.encoder_attention_heads
    config.decoder_ffn_dim = config.encoder_ffn_dim


LLAMA = Architecture(
    embeddings="",
    summary_last=True,
    signals=(HIDDEN,),
    because="its attention looks back alone, and no check of that exists here",
    last_norm="norm",
    has_masked_lm=False,
    layers=("layers",),
    even_heads=True,
)
GPT2 = replace(
    LLAMA,
    shape={"layers": "n_layer", "hidden": "n_embd", "heads": "n_head", "feed_forward": "n_inner"},
    last_norm="ln_f",
    layers=("h",),
    even_heads=False,
)
BART = Architecture(
    shape={
        "layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "hidden": "d_model",
        "heads": "encoder_attention_heads",
        "feed_forward": "encoder_ffn_dim",
    },
    follow=decoder_as_encoder,
    embeddings="",
    signals=(HIDDEN,),
    because="its decoder looks at two texts, and no check of that exists here",
    has_masked_lm=False,
    layers=("encoder.layers",),
    decoder="decoder.layers",
)


def with_fixed_places(model: Any) -> Any:
    """Keep both stacks' tables of positions from learning, in place: they are computed by a formula, no file holds
    them, and transformers lets those of a loaded model learn. Return the model."""
    for stack in (model.base_model.encoder, model.base_model.decoder):
        stack.embed_positions.weight.requires_grad_(False)
    return model


MARIAN = replace(BART, tie=with_fixed_places)
T5 = replace(
    BART,
    shape={
        "layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "hidden": "d_model",
        "heads": "num_heads",
        "feed_forward": "d_ff",
    },
    follow=unchanged,
    layers=("encoder.block",),
    decoder="decoder.block",
)
