"""ModernBERT (Warner et al. 2024, arXiv:2412.13663): rotary positions, and layers with local attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures.architecture import Architecture, keep_modules

if TYPE_CHECKING:
    from torch import Tensor


def kinds_of_kept_layers(config: Any, kept: Sequence[int]) -> None:
    """Give each layer the kind of attention, local or global, of the layer that it replaces."""
    config.layer_types = [config.layer_types[index] for index in kept]


def neighbourhood(config: Any, layer: int) -> int | None:
    """Return how many tokens to either side a local layer attends to; None for a global layer."""
    return int(config.local_attention) // 2 if config.layer_types[layer] == "sliding_attention" else None


def keep_layers(model: Any, stack: Any, kept: Sequence[int]) -> None:
    """Keep some layers, and remove the first norm of the layer that becomes the first.

    The first layer reads embeddings that are already normalised, so transformers builds it without this norm when the
    model is reloaded.
    """
    from torch import nn

    keep_modules(model, stack, kept)
    stack[0].attn_norm = nn.Identity()


def words(model: Any, states_ND: Tensor) -> Tensor:
    """Return the logits [N, V] of ModernBERT's masked-LM head."""
    logits_NV: Tensor = model.decoder(model.head(states_ND))
    return logits_NV


MODERNBERT = Architecture(
    follow=kinds_of_kept_layers,
    even_heads=True,
    reach=neighbourhood,
    last_norm="final_norm",
    layers=("layers",),
    keep_layers=keep_layers,
    word_head=words,
)
