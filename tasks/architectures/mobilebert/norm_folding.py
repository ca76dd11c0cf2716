"""NoNorm folded into the maps around it (Sun et al. 2020, MobileBERT, arXiv:2004.02984).

NoNorm is y = weight * (map(x) + residual) + bias, a scale and a shift of each dimension. The folded model carries
z = S * y along a stream, where S is the product of 1 / weight so far: then z is map(x), with rows multiplied by the S
before this norm, plus S * bias, plus the z before. What reads y reads z, with columns divided by S. The last norm of
the stream divides by S, so that every head reads what it read before.
Shape letters: D width between layers, W width within them.
"""

from __future__ import annotations

import copy
from typing import Any

from tasks.errors import ModelError

SMALLEST_WEIGHT, LARGEST_SPREAD = 1e-3, 1e4
"""Beyond these, sums in float32 would lose digits."""


def fold_norms_or_not(model: Any) -> Any:
    """Return a model to be traced: with NoNorm folded away, or as it is where that is not possible."""
    try:
        return fold_norms(model)
    except ModelError:
        return model


def fold_norms(model: Any) -> Any:
    """Return a copy of a MobileBERT that answers alike, without its NoNorms but for the last.

    Raises ModelError for a model with other norms or without bottlenecks, and for weights of norms that cannot be
    divided by without losing digits.
    """
    import torch

    config = model.config
    if config.normalization_type != "no_norm" or not config.use_bottleneck or not is_projected(config):
        raise ModelError("only the norms of a MobileBERT with bottlenecks, NoNorm and a map of embeddings are folded")
    kind = next(model.parameters()).dtype
    folded = copy.deepcopy(model).double().eval()
    with torch.no_grad():
        fold_embeddings(folded.base_model.embeddings)
        carried_D = torch.ones(config.hidden_size, dtype=torch.float64, device=model.device)
        for layer in folded.base_model.encoder.layer:
            carried_D = fold_layer(layer, carried_D)
        last = folded.base_model.encoder.layer[-1].output.bottleneck
        last.LayerNorm = type(model.base_model.embeddings.LayerNorm)(config.hidden_size).to(carried_D)
        last.LayerNorm.weight.copy_(1 / carried_D)
    return folded.to(kind).requires_grad_(False)


def is_projected(config: Any) -> bool:
    """Tell whether embeddings pass a map, which can take up a scale and a shift."""
    return bool(config.trigram_input or config.embedding_size != config.hidden_size)


def fold_embeddings(embeddings: Any) -> None:
    """Fold the norm of the embeddings into their map and the tables of positions and segments."""
    weight_D, bias_D = embeddings.LayerNorm.weight, embeddings.LayerNorm.bias
    scale_rows(embeddings.embedding_transformation, weight_D, bias_D)
    for table in (embeddings.position_embeddings, embeddings.token_type_embeddings):
        table.weight.mul_(weight_D)
    remove_norm(embeddings)


def fold_layer(layer: Any, carried_D: Any) -> Any:
    """Fold the norms of a layer whose input is the stream times ``carried_D``; return the factor of its output."""
    import torch

    narrow = layer.bottleneck.use_bottleneck_attention
    inputs = [layer.bottleneck.input]
    inputs += [layer.bottleneck.attention] if layer.bottleneck.key_query_shared_bottleneck else []
    for entry in inputs:  # no residual: the stream within the layer begins here
        entry.dense.weight.div_(carried_D)
        scale_rows(entry.dense, entry.LayerNorm.weight, entry.LayerNorm.bias)
        remove_norm(entry)
    attention = layer.attention.self
    if not narrow:  # values read the stream, and so do queries and keys without a bottleneck of their own
        shared = layer.bottleneck.key_query_shared_bottleneck
        for reader in [attention.value, *([] if shared else [attention.query, attention.key])]:
            reader.weight.div_(carried_D)
    within_W = fold_residual(layer.attention.output, torch.ones_like(layer.attention.output.dense.bias))
    for block in (*getattr(layer, "ffn", ()), layer):
        block.intermediate.dense.weight.div_(within_W)
        within_W = fold_residual(block.output, within_W)
    layer.output.bottleneck.dense.weight.div_(within_W)
    return fold_residual(layer.output.bottleneck, carried_D)


def fold_residual(block: Any, carried: Any) -> Any:
    """Fold the norm after a map and a residual that carries a factor; return the factor after it."""
    weight, bias = block.LayerNorm.weight, block.LayerNorm.bias
    if float(weight.abs().min()) < SMALLEST_WEIGHT:
        raise ModelError(f"a norm has a weight below {SMALLEST_WEIGHT}, by which nothing can be divided")
    after = carried / weight
    spread = float(after.abs().max() / after.abs().min())
    if spread > LARGEST_SPREAD:
        raise ModelError(f"the factors of the dimensions of a stream differ by {spread:,.0f}; float32 would round")
    scale_rows(block.dense, carried, after * bias)
    remove_norm(block)
    return after


def scale_rows(linear: Any, scale: Any, shift: Any) -> None:
    """Multiply a map's outputs and add to them, in place."""
    linear.weight.mul_(scale[:, None])
    linear.bias.mul_(scale).add_(shift)


def remove_norm(block: Any) -> None:
    """Put the identity in place of a norm."""
    from torch import nn

    block.LayerNorm = nn.Identity()
