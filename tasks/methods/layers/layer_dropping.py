"""Layer dropping: remove whole encoder layers from a model, in place, so that it reloads bit for bit.

Paper: Sajjad et al. 2020, "On the Effect of Dropping Layers of Pre-trained Transformer Models", arXiv:2004.03844.
Layers count from 0 in this file; ``layer_strategies`` chooses the layers to drop.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from transformers import PreTrainedModel

from tasks.architectures.architecture import renumber
from tasks.architectures.known_architectures import architecture_of
from tasks.errors import ModelError, RecipeError


def encoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Return the model's stack of layers (for ALBERT its groups, each of which runs several times)."""
    for path in architecture_of(model.config).layers:
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
    architecture_of(model.config).keep_layers(model, encoder_layers(model), kept)
    _rewrite_config(model, kept, depth)


def drop_decoder_layers(model: PreTrainedModel, kept: Sequence[int]) -> None:
    """Keep only the layers ``kept`` of the decoder of a model with two stacks, in place, and write the new depth into
    its config; ``config.kept_decoder_layers`` holds their indices."""
    architecture = architecture_of(model.config)
    name = architecture.shape["decoder_layers"]
    _require_kept(kept, int(getattr(model.config, name)))
    architecture.keep_layers(model, model.base_model.get_submodule(architecture.decoder), kept)
    setattr(model.config, name, len(kept))
    model.config.kept_decoder_layers = list(kept)


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
        renumber(model, attribute, len(kept))


def _require_kept(kept: Sequence[int], depth: int) -> None:
    if not kept or any(not 0 <= index < depth for index in kept) or sorted(set(kept)) != list(kept):
        raise RecipeError(
            f"cannot keep layers {list(kept)} of a model with {depth}; "
            f"name at least one of 0 to {depth - 1}, each once, in ascending order"
        )
