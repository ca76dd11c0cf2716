"""Limbeck's own attention functions: written out on a CPU, torch's fused kernel on a GPU, with access to the scores of
each layer.

On a CPU, the written-out form trains faster at short lengths than the fused one. Captured scores are the ones that
attention is computed from; dropout masks come from ``dropout.MASKS``. Formula: Vaswani et al. 2017, Attention Is All
You Need, arXiv:1706.03762. Shape letters: B batch, H heads, T tokens, K head size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from tasks.architectures.architecture import SCORES
from tasks.architectures.known_architectures import architecture_of
from tasks.training.models.dropout import MASKS
from tasks.training.precision import FUSED, narrow_norms

WRITTEN_OUT = "limbeck-written-out"
LANES = 16  # 32-bit numbers in the largest vector register


@dataclass(frozen=True)
class Attended:
    """The inputs of one layer's attention: queries, keys and values [B, H, T, K], and a function that returns the
    unmasked scores [B, H, T, T]."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    scores: Callable[[], Tensor]


Watch = Callable[[Attended], None]
"""Called for every layer, in order."""

_watches: list[Watch] = []


def own_attention(model: Any) -> Any:
    """Make a model compute its attention by the functions of this file, if its family allows that, and on a GPU its
    layer norms narrow where products are; return the model."""
    if open_to_watch(model):
        AttentionInterface.register(WRITTEN_OUT, written_out)
        AttentionMaskInterface.register(WRITTEN_OUT, eager_mask)
        AttentionInterface.register(FUSED, fused)
        AttentionMaskInterface.register(FUSED, fused_mask)
        model.set_attn_implementation(FUSED if model.device.type == "cuda" else WRITTEN_OUT)
    return narrow_norms(model) if model.device.type == "cuda" else model


def open_to_watch(model: Any) -> bool:
    """Tell whether a model's attention may be computed here, so that its scores can be read."""
    return SCORES in architecture_of(model.config).signals and getattr(model, "_supports_attention_backend", False)


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Call ``watch`` for the attention of every layer that runs in this block."""
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.pop()


def written_out(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Return the output of attention [B, T, H, K], and the probabilities [B, H, T, T]."""
    tokens, key_BHTK, value_BHTK = key.shape[2], key, value
    if tokens < LANES:
        key, value, attention_mask = widened(key, value, attention_mask)
    scores_BHTT = scored(query, key, scaling)
    shown_BHTT = scores_BHTT[..., :tokens]
    for watch in _watches[-1:]:
        watch(Attended(query, key_BHTK, value_BHTK, lambda: shown_BHTT))
    if attention_mask is not None:
        scores_BHTT = scores_BHTT + attention_mask
    shares_BHTT = scores_BHTT.softmax(-1)
    if module.training and dropout:
        shares_BHTT = shares_BHTT * MASKS.draw(shares_BHTT, dropout)
    return (shares_BHTT @ value).transpose(1, 2).contiguous(), shares_BHTT[..., :tokens]


def widened(key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Add masked keys up to the width of torch's vectorised softmax: below it, softmax runs number by number and is up
    to ten times slower."""
    width = LANES - key.shape[2]
    if mask is None:
        mask = key.new_zeros(1, 1, 1, key.shape[2], dtype=torch.float32)
    key, value = (F.pad(states, (0, 0, 0, width)) for states in (key, value))
    return key, value, F.pad(mask, (0, width), value=torch.finfo(mask.dtype).min)


def fused(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **named: Any,
) -> tuple[Tensor, None]:
    """Run torch's fused kernel, which does not return scores; a watch can compute them."""
    for watch in _watches[-1:]:
        watch(Attended(query, key, value, lambda: scored(query, key, scaling)))
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **named)


def fused_mask(
    attention_mask: Tensor | None = None, allow_is_bidirectional_skip: bool = False, **named: Any
) -> Tensor | None:
    """Return the mask for torch's fused kernel; None for a batch without padding, which comes without a mask.

    Transformers would look whether a mask is needed, and each forward pass would wait for the GPU to answer.
    """
    skips = allow_is_bidirectional_skip and attention_mask is None
    return sdpa_mask(attention_mask=attention_mask, allow_is_bidirectional_skip=skips, **named)


def scored(query: Tensor, key: Tensor, scaling: float | None) -> Tensor:
    """Return QK^T / sqrt(K) [B, H, T, T], multiplied in the arithmetic of the pass; scaling and softmax are then in
    float32 and add no rounding."""
    return (query @ key.transpose(2, 3)).float() * (query.shape[-1] ** -0.5 if scaling is None else scaling)
