"""Reading a model's inner signals: logits, hidden states and attention scores, in one pass and at the mapped layers only.

Transformers' own ``output_attentions`` gives probabilities after dropout, or nothing at all under a fused kernel. The scores QK^T / sqrt(head size)
are therefore taken where attention is computed (``tasks/training/attention.py``).

Shape letters: B batch, T tokens, D width, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasks.errors import ModelError
from tasks.training.attention import FAMILIES, open_to_watch, own_attention, watched_by


@dataclass(frozen=True)
class Signals:
    """What one forward pass showed: logits [B, C] (or None), hidden states by index, scores [B, H, T, T] by layer."""

    logits_BC: Tensor | None
    hidden: dict[int, Tensor]
    scores: dict[int, Tensor]


class Capture:
    """Runs a model and returns the wanted signals. ``hidden`` counts from 0 (embeddings); ``attention`` lists layers from 0."""

    def __init__(self, model: Any, *, hidden: Sequence[int] = (), attention: Sequence[int] = ()) -> None:
        self.model, self.hidden, self.attention = own_attention(model), tuple(hidden), tuple(attention)
        if attention and not open_to_watch(model):
            family = model.config.model_type
            raise ModelError(f"attention scores cannot be read from a {family} model; set matching.attention: 0, or use one of {', '.join(FAMILIES)}")

    def __call__(self, **inputs: Tensor) -> Signals:
        self.layer, self.scores = 0, dict[int, Tensor]()
        with watched_by(self.see) if self.attention else nullcontext():
            out = self.model(**inputs, output_hidden_states=bool(self.hidden), return_dict=True)
        states = out.hidden_states if self.hidden else ()
        return Signals(getattr(out, "logits", None), {index: states[index] for index in self.hidden}, self.scores)

    def see(self, scores: Callable[[], Tensor]) -> None:
        """Ask for the scores of a wanted layer and keep them."""
        if self.layer in self.attention:
            self.scores[self.layer] = scores()
        self.layer += 1


def prove(capture: Capture, inputs: dict[str, Tensor], mask_BT: Tensor) -> None:
    """Check on one batch that two passes agree (no dropout) and that softmax(scores + mask) gives the model's own probabilities."""
    if not capture.attention:
        return
    model, before = capture.model, capture.model.config._attn_implementation
    with torch.inference_mode():
        signals, again = capture(**inputs), capture(**inputs)
        model.set_attn_implementation("eager")
        own = model(**inputs, output_attentions=True).attentions
    model.set_attn_implementation(before)
    hidden_by_mask = mask_BT[:, None, None, :] == 0
    for layer, scores_BHTT in signals.scores.items():
        rebuilt = scores_BHTT.masked_fill(hidden_by_mask, -torch.inf).softmax(-1)
        if not torch.allclose(rebuilt, own[layer].float(), atol=1e-4):
            raise ModelError(f"the attention scores read from layer {layer} do not give this {model.config.model_type}'s own probabilities")
        if not torch.equal(scores_BHTT, again.scores[layer]):
            raise ModelError("the teacher answers differently when asked twice: it still drops units out")
