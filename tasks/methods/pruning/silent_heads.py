"""Attention without some of its heads, of which layers may keep different numbers.

No plain config of BERT's families states how many heads a layer has, so that a model with fewer heads is no folder that
loads by itself. A head whose weights to queries, keys, values and of the output are 0 adds 0 to the hidden states, and
the gradients of these weights are 0, too, as long as nothing but the output of the layer is trained. So a folder keeps
such silent heads, and a graph leaves them out: both compute the same.
Sources: Michel et al. 2019, arXiv:1905.10650; Voita et al. 2019, arXiv:1905.09418.
Shape letters: L layers, H heads, C inner width of attention, which is H times the size of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tasks.errors import ModelError, RecipeError
from tasks.methods.pruning.importance import most_important
from tasks.methods.pruning.widths import AttentionMaps, attention_maps, width_and_heads_of


def maps_of_heads(model: Any) -> list[AttentionMaps]:
    """Return the maps of every layer's attention. Raises ModelError for a model of which no head can be silent."""
    try:
        return attention_maps(model)
    except ModelError:
        raise ModelError(
            f"heads of a model of type {model.config.model_type} cannot be removed alone: its attention is not four "
            "linear maps as wide as its hidden states in each layer; prune neurons or drop layers instead"
        ) from None


def sounding_heads(model: Any) -> Tensor:
    """Return which heads of each layer add something to the hidden states, [L, H]: those with values, and weights that
    read them."""
    _, heads = width_and_heads_of(model.config)
    return torch.stack([sounding_of_layer(layer, heads) for layer in maps_of_heads(model)])


def has_silent_heads(model: Any) -> bool:
    """Tell whether heads of a model are silent; those of another attention than four linear maps never are."""
    try:
        return not bool(sounding_heads(model).all())
    except ModelError:
        return False


def sounding_of_layer(layer: AttentionMaps, heads: int) -> Tensor:
    """Return which heads of one layer add something, [H]."""
    value, inner = layer.inputs[2], layer.output.in_features
    biases_C = value.weight.new_zeros(inner) if value.bias is None else value.bias
    has_values_C = (value.weight != 0).any(1) | (biases_C != 0)
    is_read_C = (layer.output.weight != 0).any(0)
    return has_values_C.view(heads, -1).any(1) & is_read_C.view(heads, -1).any(1)


def kept_heads(importance_LH: Tensor, sounding_LH: Tensor, share: float, scope: str) -> list[list[int]]:
    """Return the heads of each layer that are a share of those that are not silent yet, the most important ones:
    equally many of each layer, or with ``scope`` ``global`` of all layers together, at least one of each.

    Layers are compared after each is divided by its 2-norm, because gradients grow from layer to layer. Raises
    RecipeError if that is all of them.
    """
    total, layers = int(sounding_LH.sum()), len(sounding_LH)
    ranks_LH = torch.where(sounding_LH, importance_LH.double(), -1.0)
    if scope == "layer":
        counts = [max(1, round(int(sounding_H.sum()) * share)) for sounding_H in sounding_LH]
    else:
        norms_L1 = importance_LH.double().norm(dim=1, keepdim=True).clamp(min=1e-300)
        ranks_LH = torch.where(sounding_LH, importance_LH.double() / norms_L1, -1.0)
        ahead_L = ranks_LH.argmax(1, keepdim=True)
        first_LH = ranks_LH.scatter(1, ahead_L, torch.inf)  # the best one of a layer stays
        chosen = most_important(first_LH.flatten(), max(layers, round(total * share)))
        counts = [sum(1 for one in chosen if one // ranks_LH.shape[1] == layer) for layer in range(layers)]
    if sum(counts) >= total:
        raise RecipeError(
            f"keep: {share} of {total} heads is all of them: none would be removed; give a smaller share, or another "
            f"scope"
        )
    return [most_important(ranks_H, count) for ranks_H, count in zip(ranks_LH, counts, strict=True)]


def silence_heads(model: Any, kept_LH: Sequence[Sequence[int]]) -> None:
    """Set the weights of all other heads to 0, in place; the shape of the model stays."""
    size = size_of_one_head(model)
    with torch.no_grad():
        for layer, kept in zip(maps_of_heads(model), kept_LH, strict=True):
            gone = torch.ones(layer.output.in_features, dtype=torch.bool, device=layer.output.weight.device)
            gone[places_of_heads(kept, size)] = False
            layer.output.weight[:, gone] = 0
            for one in layer.inputs:
                one.weight[gone] = 0
                if one.bias is not None:
                    one.bias[gone] = 0


def leave_out_silent_heads(model: Any) -> int:
    """Remove silent heads from a model that is traced and not saved, in place; return how many parameters it has less.
    Models whose heads cannot be silent stay as they are."""
    try:
        sounding_LH = sounding_heads(model)
    except ModelError:
        return 0
    size, before = size_of_one_head(model), sum(value.numel() for value in model.parameters())
    for layer, sounding_H in zip(maps_of_heads(model), sounding_LH, strict=True):
        kept = [head for head, sounds in enumerate(sounding_H.tolist()) if sounds] or [0]
        numbers = places_of_heads(kept, size)
        if len(numbers) == layer.output.in_features:
            continue
        for one in layer.inputs:
            one.weight, one.out_features = nn.Parameter(one.weight.detach()[numbers].clone()), len(numbers)
            if one.bias is not None:
                one.bias = nn.Parameter(one.bias.detach()[numbers].clone())
        layer.output.weight = nn.Parameter(layer.output.weight.detach()[:, numbers].clone())
        layer.output.in_features = len(numbers)
    return before - sum(value.numel() for value in model.parameters())


def size_of_one_head(model: Any) -> int:
    """Return the numbers of one head; heads that are left keep it, and with it the scale of their scores."""
    width, heads = width_and_heads_of(model.config)
    return width // heads


def places_of_heads(heads: Sequence[int], size: int) -> list[int]:
    """Return the places of heads in the inner width."""
    return [head * size + number for head in heads for number in range(size)]
