"""A language model with other attentions than GPT-2's (``tasks/modeling``), made from a GPT-2: embeddings, feed-forward
blocks and norms are copied, and queries, keys, values and output maps where a mixer has such a map of the same shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tasks.architectures.architecture import keep_modules, plain_class
from tasks.architectures.decoders import GPT2
from tasks.architectures.limbeck.encoder import (
    mixers_of_kept_layers,
    note_of_causal_graph,
    require_copied_positions,
    require_mixers_and_widths,
    with_classes,
)
from tasks.architectures.limbeck.translator import require_that_writes, stated_sizes
from tasks.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

DECODER = "limbeck-decoder"
SIZES_OF_BLOCKS = {
    "n_embd": "hidden",
    "n_head": "heads",
    "n_inner": "feed_forward",
    "n_positions": "positions",
    "mixer_kernels": "kernel",
    "mixer_rank": "rank",
    "mixer_features": "features",
    "mixer_window": "window",
}
"""Knobs of a shape by their names in the config."""


def decoder_from_gpt2(model: Any, shape: Any, kept: Sequence[int]) -> Any:
    """Build a language model with a layer for each of a GPT-2's layers ``kept``; with ``drawn``, all weights are drawn.
    Raises ModelError for a model without a head over its vocabulary."""
    import torch
    from transformers import GPT2LMHeadModel

    from tasks.modeling.configuration import LimbeckDecoderConfig
    from tasks.modeling.decoder import LimbeckDecoderForCausalLM
    from tasks.modeling.registration import register_classes

    register_classes()
    if plain_class(model) is not GPT2LMHeadModel:
        raise ModelError(f"start: {DECODER} makes language models, and its teacher is a {type(model).__name__}")
    require_copied_positions(shape, model.config.n_positions)
    mixer = getattr(shape, "mixer", None) or "softmax"
    build: Any = LimbeckDecoderConfig
    sizes = stated_sizes(model.config, shape, SIZES_OF_BLOCKS) | {"n_layer": len(kept)}
    config = build(**sizes, mixer=mixer)
    student = LimbeckDecoderForCausalLM._from_config(config, dtype=torch.float32)
    student.generation_config = model.generation_config
    if not getattr(shape, "drawn", None):
        with torch.no_grad():
            copy_gpt2(student, maps_apart(model.state_dict()), kept)
    return student


def maps_apart(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a GPT-2's weights with queries, keys and values apart, by the names that a mixer has for them; its maps
    are stored as inputs by outputs."""
    found = dict(weights)
    for name, value in weights.items():
        path, _, kind = name.rpartition(".")
        if path.endswith(".attn.c_attn"):
            for part, own in zip(("query", "key", "value"), value.chunk(3, -1), strict=True):
                found[f"{path.removesuffix('c_attn')}mixer.{part}.{kind}"] = own.T if own.ndim == 2 else own
        if path.endswith(".attn.c_proj"):
            found[f"{path.removesuffix('c_proj')}out_proj.{kind}"] = value.T if value.ndim == 2 else value
    return found


def copy_gpt2(student: Any, theirs: Mapping[str, Tensor], kept: Sequence[int]) -> None:
    """Copy every weight of the teacher that has the same place and shape in the student; of positions the first."""
    for name, value in student.state_dict().items():
        parts = name.split(".")
        if parts[:2] == ["transformer", "h"]:
            parts[2] = str(kept[int(parts[2])])
        source = theirs.get(".".join(parts))
        if source is not None and name == "transformer.wpe.weight":
            source = source[: len(value)]
        if source is not None and source.shape == value.shape:
            value.copy_(source)


def require_decoding_mixers(teacher: Mapping[str, int | None], shape: Any) -> None:
    """Raise ModelError for a shape that does not fit a teacher's, and for a mixer that would read later words."""
    for mixer in require_mixers_and_widths(teacher, shape, DECODER):
        require_that_writes(mixer)


def keep_mixing_blocks(model: Any, stack: Any, kept: Sequence[int]) -> None:
    """Keep some layers, each with its mixer."""
    keep_modules(model, stack, kept)
    mixers_of_kept_layers(model.config, kept)


LIMBECK_DECODER = replace(
    GPT2,
    follow=mixers_of_kept_layers,
    from_teachers={"gpt2": decoder_from_gpt2},
    check_shape=require_decoding_mixers,
    own_widths=True,
    start_note="a language model with other attentions (mixer), copied but for what an attention does not have",
    tie=with_classes,
    because="its layers have other attentions, most of which have no scores",
    keep_layers=keep_mixing_blocks,
    graph_note=note_of_causal_graph,
)
