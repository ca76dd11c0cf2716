"""Reading a model's inner signals while it runs: hidden states, and raw attention scores before the softmax.

Transformers' own ``output_attentions`` gives probabilities after dropout, or nothing at all under a fused kernel. The scores are therefore
rebuilt from what the query and key projections put out: QK^T / sqrt(head size), for the mapped layers only.

Shape letters: B batch, T tokens, D width, H heads, K head size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tasks.errors import ModelError
from tasks.methods.layer_dropping import encoder_layers

QUERY_KEY = (("attention.self.query", "attention.self.key"), ("attention.q_lin", "attention.k_lin"))
"""Where families keep separate query and key projections: BERT, RoBERTa, ELECTRA; DistilBERT."""


@dataclass(frozen=True)
class Signals:
    """What one forward pass showed: logits [B, C] (or None), hidden states by index, scores [B, H, T, T] by layer."""

    logits_BC: Tensor | None
    hidden: dict[int, Tensor]
    scores: dict[int, Tensor]


class Capture:
    """Runs a model and returns the wanted signals. ``hidden`` counts from 0 (embeddings); ``attention`` lists layers from 0."""

    def __init__(self, model: Any, *, hidden: Sequence[int] = (), attention: Sequence[int] = ()) -> None:
        self.model, self.hidden, self.attention = model, tuple(hidden), tuple(attention)
        self.heads: int = model.config.num_attention_heads
        self.seen: dict[tuple[str, int], Tensor] = {}
        for layer in self.attention:
            self.watch(layer)

    def watch(self, layer: int) -> None:
        """Hook the query and key projections of one layer."""
        query, key = query_and_key(self.model, layer)
        query.register_forward_hook(lambda module, inputs, output: self.seen.__setitem__(("query", layer), output))
        key.register_forward_hook(lambda module, inputs, output: self.seen.__setitem__(("key", layer), output))

    def __call__(self, **inputs: Tensor) -> Signals:
        self.seen.clear()
        out = self.model(**inputs, output_hidden_states=bool(self.hidden), return_dict=True)
        states = out.hidden_states if self.hidden else ()
        scores = {layer: self.scores(layer) for layer in self.attention}
        return Signals(getattr(out, "logits", None), {index: states[index] for index in self.hidden}, scores)

    def scores(self, layer: int) -> Tensor:
        """Return QK^T / sqrt(K) [B, H, T, T] of one layer, in float32: bfloat16 would round the differences that are to be copied."""
        query_BHTK, key_BHTK = (self.by_head(self.seen[name, layer]) for name in ("query", "key"))
        return (query_BHTK @ key_BHTK.transpose(-1, -2)).float() / math.sqrt(query_BHTK.shape[-1])

    def by_head(self, states_BTD: Tensor) -> Tensor:
        """Split the width into heads: [B, T, D] to [B, H, T, K]."""
        return states_BTD.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def query_and_key(model: Any, layer: int) -> tuple[nn.Module, nn.Module]:
    """Find the query and key projections of a layer."""
    block = encoder_layers(model)[layer]
    for query, key in QUERY_KEY:
        try:
            return block.get_submodule(query), block.get_submodule(key)
        except AttributeError:
            continue
    family = model.config.model_type
    raise ModelError(f"attention scores cannot be read from a {family} model; set matching.attention: 0, or use a BERT, RoBERTa, ELECTRA or DistilBERT")


def prove(capture: Capture, inputs: dict[str, Tensor], mask_BT: Tensor) -> None:
    """Check on one batch that two passes agree (no dropout) and that softmax(scores + mask) gives the model's own probabilities."""
    if not capture.attention:
        return
    model, before = capture.model, capture.model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        own = model(**inputs, output_attentions=True).attentions
        signals, again = capture(**inputs), capture(**inputs)
    model.set_attn_implementation(before)
    hidden_by_mask = mask_BT[:, None, None, :] == 0
    for layer, scores_BHTT in signals.scores.items():
        rebuilt = scores_BHTT.masked_fill(hidden_by_mask, -torch.inf).softmax(-1)
        if not torch.allclose(rebuilt, own[layer].float(), atol=1e-4):
            raise ModelError(f"the attention scores read from layer {layer} do not give this {model.config.model_type}'s own probabilities")
        if not torch.equal(scores_BHTT, again.scores[layer]):
            raise ModelError("the teacher answers differently when asked twice: it still drops units out")
