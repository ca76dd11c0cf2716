"""Encoders with a narrower residual stream: some dimensions of all hidden states are removed, and whole attention heads
with them, so that the size of a head and the scale of its scores stay.

All layers read and write one stream, so one set of dimensions is kept everywhere. A dimension that is removed is one
that is always 0, but for the norms, whose mean and variance are those of the remaining ones: without training, more is
lost than by fewer neurons. Source: Muralidharan et al. 2024 (Minitron), arXiv:2407.14679.
Shape letters: L layers, D width, H heads, C inner width of attention, which is H times the size of a head.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tasks.architectures.known_architectures import architecture_of
from tasks.errors import ModelError, RecipeError
from tasks.methods.layers.layer_dropping import encoder_layers

PATHS = (
    (("attention.self.query", "attention.self.key", "attention.self.value"), "attention.output.dense"),
    (("attention.q_lin", "attention.k_lin", "attention.v_lin"), "attention.out_lin"),
)
"""Paths, in a layer, of the maps to queries, keys and values, and of the map of the output."""


@dataclass(frozen=True)
class AttentionMaps:
    """The linear maps of the attention of one layer."""

    inputs: tuple[nn.Linear, ...]
    """To queries, keys and values."""
    output: nn.Linear


def width_and_heads_of(config: Any) -> tuple[int, int]:
    """Return a model's width and the number of heads of each layer."""
    names = architecture_of(config).shape
    return int(getattr(config, names["hidden"])), int(getattr(config, names["heads"]))


def attention_maps(model: Any) -> list[AttentionMaps]:
    """Return the maps of every layer's attention. Raises ModelError for a model whose attention is not four linear maps
    as wide as its hidden states, each layer with its own."""
    (width, _), found = width_and_heads_of(model.config), []
    for layer in encoder_layers(model):
        modules = dict(layer.named_modules())
        paths = next((one for one in PATHS if {*one[0], one[1]} <= modules.keys()), None)
        maps = [] if paths is None else [modules[path] for path in (*paths[0], paths[1])]
        if not maps or not all(
            isinstance(one, nn.Linear) and tuple(one.weight.shape) == (width, width) for one in maps
        ):
            raise ModelError(
                f"a model of type {model.config.model_type} cannot be made narrower: its attention is not four linear "
                "maps as wide as its hidden states in each layer; prune neurons or drop layers instead"
            )
        found.append(AttentionMaps(tuple(maps[:3]), maps[3]))
    return found


def heads_to_keep(heads: int, share: float) -> int:
    """Return how many heads of each layer a share is; the width becomes that many times the size of a head. Raises
    RecipeError if it is all of them."""
    kept = max(1, round(heads * share))
    if kept >= heads:
        raise RecipeError(
            f"keep: {share} of {heads} heads is all of them, and the width is a multiple of the size of a head: "
            f"nothing would be removed; give a smaller share"
        )
    return kept


def narrowed(model: Any, kept_D: Sequence[int], kept_LH: Sequence[Sequence[int]]) -> Any:
    """Return a copy of a model with these dimensions of the stream and these heads of each layer, the same number in
    all layers. Raises ModelError where a plain config cannot state the narrower shape."""
    maps, names = attention_maps(model), architecture_of(model.config).shape
    (width, heads), config = width_and_heads_of(model.config), copy.deepcopy(model.config)
    setattr(config, names["hidden"], len(kept_D))
    setattr(config, names["heads"], len(kept_LH[0]))
    if getattr(config, "embedding_size", None) == width:
        config.embedding_size = len(kept_D)  # such embeddings are part of the stream: there is no map between the two
    architecture_of(config).follow(config, range(len(kept_LH)))
    small = type(model)._from_config(config, dtype=model.dtype).to(model.device)
    inner = inner_rows(model, maps, kept_LH, width // heads)
    before, after = model.state_dict(), small.state_dict()
    if before.keys() != after.keys():
        extra = sorted(before.keys() ^ after.keys())[0]
        raise ModelError(
            f"a model of type {model.config.model_type} and width {len(kept_D)} has other parameters than one of width "
            f"{width} ({extra}); prune neurons or drop layers instead"
        )
    for name, value in after.items():
        value.copy_(take_kept(before[name], value.shape, inner.get(name, {}), torch.tensor(kept_D)))
    return small.train(model.training)


def inner_rows(
    model: Any, maps: Sequence[AttentionMaps], kept_LH: Sequence[Sequence[int]], size: int
) -> Mapping[str, Mapping[int, Tensor]]:
    """Return, by parameter and axis, the kept numbers of the axes that belong to heads and not to the stream."""
    names = {module: name for name, module in model.named_modules()}
    found: dict[str, dict[int, Tensor]] = {}
    for layer, heads in zip(maps, kept_LH, strict=True):
        numbers = torch.tensor([head * size + number for head in heads for number in range(size)])
        for one in layer.inputs:
            found[f"{names[one]}.weight"] = found[f"{names[one]}.bias"] = {0: numbers}
        found[f"{names[layer.output]}.weight"] = {1: numbers}
    return found


def take_kept(value: Tensor, shape: Sequence[int], inner: Mapping[int, Tensor], kept_D: Tensor) -> Tensor:
    """Return a parameter with the kept numbers of each axis that becomes shorter."""
    for axis, (old, new) in enumerate(zip(value.shape, shape, strict=True)):
        if old != new:
            value = value.index_select(axis, inner.get(axis, kept_D).to(value.device))
    return value
