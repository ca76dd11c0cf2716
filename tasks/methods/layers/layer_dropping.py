"""Layer dropping: remove whole encoder layers from a model, in place, so that it reloads bit for bit.

Paper: Sajjad et al. 2020, "On the Effect of Dropping Layers of Pre-trained Transformer Models", arXiv:2004.03844.
Layers count from 0 in this file; ``layer_strategies`` chooses the layers to drop.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from transformers import PreTrainedModel

from tasks.errors import ModelError, RecipeError

LAYER_PATHS = (
    "encoder.layer",  # BERT, RoBERTa, ELECTRA, DeBERTa-v2, MobileBERT
    "transformer.layer",  # DistilBERT
    "encoder.albert_layer_groups",
    "layer",  # XLNet
    "layers",  # ModernBERT
)


def encoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Return the model's stack of layers (for ALBERT its groups, each of which runs several times)."""
    for path in LAYER_PATHS:
        found: object = model.base_model
        for name in path.split("."):
            found = getattr(found, name, None)
        if isinstance(found, nn.ModuleList):
            return found
    raise ModelError(f"no stack of encoder layers was found in {type(model).__name__}; use a BERT-like encoder")


def drop_layers(model: PreTrainedModel, kept: Sequence[int]) -> None:
    """Keep only the layers ``kept`` of ``model``, in place, and write the new depth into its config.

    ``config.kept_layers`` holds the indices in the first, undropped model, also after several drops.
    """
    depth = int(model.config.num_hidden_layers)
    _require_kept(kept, depth)
    if model.config.model_type == "albert":
        _keep_albert_groups(model, kept, depth)
    else:
        _keep_modules(model, kept)
    _rewrite_config(model, kept, depth)


def _keep_modules(model: PreTrainedModel, kept: Sequence[int]) -> None:
    stack = encoder_layers(model)
    layers = [stack[index] for index in kept]
    del stack[:]
    stack.extend(layers)
    for index, layer in enumerate(layers):
        _renumber(layer, "layer_idx", index)
    if model.config.model_type == "modernbert":
        # ModernBERT's first layer reads embeddings that are normalised already and has no norm of its own;
        # a reload builds it so, hence a layer that moves to the front loses its norm here as well.
        layers[0].attn_norm = nn.Identity()


def _keep_albert_groups(model: PreTrainedModel, kept: Sequence[int], depth: int) -> None:
    """Reduce the depth of ALBERT: it has no layers of its own to delete, only groups, of which unused ones are
    removed."""
    groups = int(model.config.num_hidden_groups)
    used = [int(index / (depth / groups)) for index in kept]
    left = sorted(set(used))
    rebuilt = [left[int(turn / (len(kept) / len(left)))] for turn in range(len(kept))]
    if rebuilt != used:
        raise ModelError(
            f"this ALBERT shares {groups} groups among {depth} layers and cannot keep layers {list(kept)}; "
            "keep the same number of layers from each group"
        )
    stack = encoder_layers(model)
    modules = [stack[group] for group in left]
    del stack[:]
    stack.extend(modules)
    model.config.num_hidden_groups = len(left)


def _rewrite_config(model: PreTrainedModel, kept: Sequence[int], depth: int) -> None:
    config = model.config
    before = getattr(config, "kept_layers", None)
    names = before if before is not None and len(before) == depth else range(depth)
    types = getattr(config, "layer_types", None)
    config.num_hidden_layers = len(kept)
    config.kept_layers = [int(names[index]) for index in kept]
    if types is not None:
        config.layer_types = [types[index] for index in kept]
    for attribute in ("n_layer", "n_layers"):  # XLNet and DistilBERT store their depth outside the config, too
        _renumber(model, attribute, len(kept))


def _renumber(root: nn.Module, attribute: str, value: int) -> None:
    for module in root.modules():
        if isinstance(getattr(module, attribute, None), int):
            setattr(module, attribute, value)


def _require_kept(kept: Sequence[int], depth: int) -> None:
    if not kept or any(not 0 <= index < depth for index in kept) or sorted(set(kept)) != list(kept):
        raise RecipeError(
            f"cannot keep layers {list(kept)} of a model with {depth}; "
            f"name at least one of 0 to {depth - 1}, each once, in ascending order"
        )
