"""Decoders: models that read a text from left to right and predict its next token.

GPT-2: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". Llama: Touvron et al. 2023,
arXiv:2302.13971; Qwen3, Mistral and SmolLM3 have its layout. Their hidden states and outputs can be read. A layer
counts its own keys and values among those of a cache by its number, which follows the layers that stay.
"""

from __future__ import annotations

from dataclasses import replace

from tasks.architectures.architecture import HIDDEN, Architecture

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
