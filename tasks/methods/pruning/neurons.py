"""Feed-forward blocks with fewer neurons: rows of the first map and columns of the second are removed.

A neuron that is removed is one whose activation is always 0, so a model with the neurons in another order, or without
those that are never active, computes the same. Source: Hou et al. 2020 (DynaBERT), arXiv:2004.04037.
Shape letters: L blocks, F neurons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from torch import nn

from tasks.architectures.known_architectures import architecture_of
from tasks.errors import ModelError, RecipeError
from tasks.methods.layers.layer_dropping import encoder_layers

MULTIPLE = 32
"""Numbers of neurons are multiples of this, because kernels multiply whole blocks of numbers."""


def feed_forward_maps(model: Any) -> list[tuple[nn.Linear, nn.Linear]]:
    """Return the two maps of every feed-forward block, in order; shared blocks once. Raises ModelError for a model
    whose blocks are not two linear maps."""
    architecture = architecture_of(model.config)
    paths = architecture.feed_forward
    if paths is None:
        raise ModelError(
            f"neurons of a model of type {model.config.model_type} cannot be removed: its feed-forward blocks are not "
            "two linear maps of [texts, tokens, width]; drop layers instead"
        )
    blocks = (block for layer in encoder_layers(model) for block in [layer, *getattr(layer, architecture.stacked, ())])
    pairs = ([block.get_submodule(path) for path in paths] for block in blocks)
    # An ALBERT that shares feed-forward blocks alone has layers of its own with one block in all of them.
    return list(dict.fromkeys((cast("nn.Linear", first), cast("nn.Linear", second)) for first, second in pairs))


def neurons_to_keep(neurons: int, share: float) -> int:
    """Return how many neurons of each block a share is, rounded to a multiple of 32 where there are that many; raise
    RecipeError if it is all of them."""
    unit = MULTIPLE if neurons >= 2 * MULTIPLE else 1
    kept = max(unit, round(neurons * share / unit) * unit)
    if kept >= neurons:
        raise RecipeError(
            f"keep: {share} of {neurons:,} neurons is {kept:,}, in steps of {unit}: none would be removed; give a "
            f"smaller share"
        )
    return kept


def keep_neurons(model: Any, kept_LF: Sequence[Sequence[int]]) -> None:
    """Keep these neurons of each block, in place, and write their number, the same for all blocks, into the config."""
    for (first, second), kept in zip(feed_forward_maps(model), kept_LF, strict=True):
        first.weight = nn.Parameter(first.weight.detach()[list(kept)].clone())
        if first.bias is not None:
            first.bias = nn.Parameter(first.bias.detach()[list(kept)].clone())
        second.weight = nn.Parameter(second.weight.detach()[:, list(kept)].clone())
        first.out_features = second.in_features = len(kept)
    setattr(model.config, architecture_of(model.config).shape["feed_forward"], len(kept_LF[0]))
