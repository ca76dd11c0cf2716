"""Reading a model's inner signals: logits, hidden states, attention scores, queries, keys and values, in one pass and at the mapped layers only.

Transformers' own ``output_attentions`` gives probabilities after dropout, or nothing at all under a fused kernel. The scores QK^T / sqrt(head size)
are therefore taken where attention is computed (``tasks/training/attention.py``), and so are queries, keys and values, under a fused kernel too.

Shape letters: B batch, T tokens, D width, H heads, K head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tasks.errors import ModelError
from tasks.training.attention import FAMILIES, Attended, open_to_watch, own_attention, scored, watched_by


@dataclass(frozen=True)
class Signals:
    """What one forward pass showed: logits [B, C] (or None), and by layer hidden states, scores [B, H, T, T], and queries, keys and values [B, H, T, K]."""

    logits_BC: Tensor | None
    hidden: dict[int, Tensor]
    scores: dict[int, Tensor]
    states: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    """Queries, keys and values, by layer and by the names query, key and value."""


class Capture:
    """Runs a model and returns the wanted signals. ``hidden`` counts from 0 (embeddings); ``attention`` and ``states`` list layers from 0."""

    def __init__(self, model: Any, *, hidden: Sequence[int] = (), attention: Sequence[int] = (), states: Sequence[int] = ()) -> None:
        self.model, self.hidden, self.attention, self.states = own_attention(model), tuple(hidden), tuple(attention), tuple(states)
        if (attention or states) and not open_to_watch(model):
            family = model.config.model_type
            raise ModelError(f"attention scores cannot be read from a {family} model; set matching.attention: 0, or use one of {', '.join(FAMILIES)}")

    def __call__(self, **inputs: Tensor) -> Signals:
        self.layer, self.seen = 0, Signals(None, {}, {})
        with watched_by(self.see) if self.attention or self.states else nullcontext():
            out = self.model(**inputs, output_hidden_states=bool(self.hidden), return_dict=True)
        hidden = out.hidden_states if self.hidden else ()
        return replace(self.seen, logits_BC=getattr(out, "logits", None), hidden={index: hidden[index] for index in self.hidden})

    def see(self, layer: Attended) -> None:
        """Keep what is wanted of a layer."""
        if self.layer in self.attention:
            self.seen.scores[self.layer] = layer.scores()
        if self.layer in self.states:
            self.seen.states[self.layer] = {"query": layer.queries, "key": layer.keys, "value": layer.values}
        self.layer += 1


def prove(capture: Capture, inputs: dict[str, Tensor], mask_BT: Tensor) -> None:
    """Check on one batch that two passes agree (no dropout) and that softmax(scores + mask) gives the model's own probabilities."""
    if not capture.attention and not capture.states:
        return
    model, before = capture.model, capture.model.config._attn_implementation
    with torch.inference_mode():
        shown, again = (scores_of(capture(**inputs)) for _ in range(2))
        model.set_attn_implementation("eager")
        own = model(**inputs, output_attentions=True).attentions
    model.set_attn_implementation(before)
    hidden_by_mask = mask_BT[:, None, None, :] == 0
    for layer, scores_BHTT in shown.items():
        rebuilt = scores_BHTT.masked_fill(hidden_by_mask, -torch.inf).softmax(-1)
        if not torch.allclose(rebuilt, own[layer].float(), atol=1e-4):
            raise ModelError(f"the attention scores read from layer {layer} do not give this {model.config.model_type}'s own probabilities")
        if not torch.equal(scores_BHTT, again[layer]):
            raise ModelError("the teacher answers differently when asked twice: it still drops units out")


def scores_of(signals: Signals) -> dict[int, Tensor]:
    """Return scores by layer: as they were read, or made of the queries and keys that were."""
    return signals.scores | {layer: scored(states["query"], states["key"], None) for layer, states in signals.states.items()}
