"""A translator with other attentions than Marian's (``tasks/modeling``), made from a Marian: embeddings, feed-forward
blocks, norms and the attention to the source are copied, and queries, keys, values and output maps where a mixer has
such a map of the same shape.

Paper: Wu et al. 2020, Lite Transformer with Long-Short Range Attention, arXiv:2004.11886.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tasks.architectures.architecture import keep_modules, plain_class
from tasks.architectures.decoders import MARIAN, with_fixed_places
from tasks.architectures.limbeck.encoder import (
    mixers_of_kept_layers,
    note_of_causal_graph,
    require_halves,
    require_own_widths,
    require_read_knobs,
    with_classes,
)
from tasks.errors import ModelError
from tasks.modeling.names import reads_back

TRANSLATOR = "limbeck-seq2seq"
MARIANS_NAMES = {"mixer.query": "q_proj", "mixer.key": "k_proj", "mixer.value": "v_proj"}
"""Maps of a mixer, by the names that Marian has for them."""
OF_THE_FOLDER = ("model_type", "architectures", "transformers_version", "num_hidden_layers")
"""Entries of a config that say what a folder holds, and not how the model is built."""


def translator_from_marian(model: Any, shape: Any, kept: Sequence[int]) -> Any:
    """Build a translator with a layer for each layer ``kept`` of a Marian's encoder, and for each of its decoder; with
    ``drawn``, all weights are drawn. Raises ModelError for a model without a head that writes."""
    import torch
    from transformers import MarianMTModel

    from tasks.modeling.registration import register_classes
    from tasks.modeling.translator import LimbeckSeq2SeqForConditionalGeneration

    register_classes()
    if plain_class(model) is not MarianMTModel:
        raise ModelError(f"start: {TRANSLATOR} makes translators, and its teacher is a {type(model).__name__}")
    config = translator_config(model.config, shape, len(kept))
    as_theirs = {"dtype": torch.float32, "attn_implementation": model.config._attn_implementation}
    student = LimbeckSeq2SeqForConditionalGeneration._from_config(config, **as_theirs)
    student.generation_config = model.generation_config
    if not getattr(shape, "drawn", None):
        with torch.no_grad():
            copy_marian(student, model, {"encoder": kept, "decoder": range(config.decoder_layers)})
    return student


SIZES_OF_BOTH = {
    "d_model": "hidden",
    "encoder_attention_heads": "heads",
    "decoder_attention_heads": "heads",
    "encoder_ffn_dim": "feed_forward",
    "decoder_ffn_dim": "feed_forward",
    "max_position_embeddings": "positions",
    "mixer_kernels": "kernel",
    "decoder_kernels": "kernel",
    "mixer_rank": "rank",
    "mixer_features": "features",
    "mixer_window": "window",
}
"""Knobs of a shape by their names in the config."""


def stated_sizes(config: Any, shape: Any, knobs: Mapping[str, str]) -> dict[str, object]:
    """Return the entries of a teacher's config for a student's, with what its shape asks for."""
    sizes = {name: value for name, value in config.to_dict().items() if name not in OF_THE_FOLDER}
    asked = {name: getattr(shape, knob, None) for name, knob in knobs.items()}
    return sizes | {name: value for name, value in asked.items() if value is not None}


def translator_config(config: Any, shape: Any, layers: int) -> Any:
    """Return the config for a Marian's config and a student's shape."""
    from tasks.modeling.configuration import LimbeckSeq2SeqConfig

    build: Any = LimbeckSeq2SeqConfig
    mixer = getattr(shape, "mixer", None) or "softmax"
    sizes = stated_sizes(config, shape, SIZES_OF_BOTH) | {"encoder_layers": layers}
    return build(**sizes, mixer=mixer, decoder_mixer=mixer)


def copy_marian(student: Any, teacher: Any, kept: Mapping[str, Sequence[int]]) -> None:
    """Copy every weight of the teacher that has the same place and shape in the student."""
    theirs = teacher.state_dict()
    for name, value in student.state_dict().items():
        for ours, marians in MARIANS_NAMES.items():
            name = name.replace(f"self_attn.{ours}.", f"self_attn.{marians}.")
        parts = name.split(".")
        if parts[2:3] == ["layers"]:
            parts[3] = str(kept[parts[1]][int(parts[3])])
        source = theirs.get(".".join(parts))
        if source is not None and source.shape == value.shape:
            value.copy_(source)


def require_mixer_of_both(teacher: Mapping[str, int | None], shape: Any) -> None:
    """Raise ModelError for a shape that does not fit a teacher's: mixers or kernels by layer, a mixer that would read
    words that are not written yet, other widths than the copied weights have, and knobs that its mixer does not
    read."""
    mixer, kernel = getattr(shape, "mixer", None) or "softmax", getattr(shape, "kernel", None)
    for knob, value in {"mixer": mixer, "kernel": kernel}.items():
        if isinstance(value, (list, tuple)):
            raise ModelError(
                f"{knob} is a list, and start: {TRANSLATOR} has one in all layers of both stacks; name one"
            )
    require_that_writes(mixer)
    require_own_widths(teacher, shape, TRANSLATOR)
    require_halves([mixer], teacher, shape)
    require_read_knobs([mixer], shape)


def require_that_writes(mixer: str) -> None:
    """Raise ModelError for a mixer that would read later words."""
    if not reads_back(mixer):
        raise ModelError(
            f"mixer is {mixer}, which cannot write: it would read words that are not written yet; use linear, light, "
            f"dynamic, lsra, local or a synthesizer"
        )


def mixers_of_both_stacks(config: Any, kept: Sequence[int]) -> None:
    """Give each layer of the encoder the mixer of the layer that it replaces, and the width of its convolution; those
    of a decoder with fewer layers are the first ones."""
    mixers_of_kept_layers(config, kept)
    config.decoder_mixer = config.decoder_mixer[: config.decoder_layers]
    config.decoder_kernels = config.decoder_kernels[: config.decoder_layers]


def keep_mixing_layers(model: Any, stack: Any, kept: Sequence[int]) -> None:
    """Keep some layers of one of the stacks, each with its mixer."""
    in_decoder = stack is model.base_model.decoder.layers
    keep_modules(model, stack, kept)
    for name in ("decoder_mixer", "decoder_kernels") if in_decoder else ("mixer", "mixer_kernels"):
        setattr(model.config, name, [getattr(model.config, name)[index] for index in kept])


def known_and_fixed(model: Any) -> Any:
    """Make the auto classes of transformers know the model, and keep its tables of positions from learning."""
    return with_fixed_places(with_classes(model))


LIMBECK_TRANSLATOR = replace(
    MARIAN,
    follow=mixers_of_both_stacks,
    from_teachers={"marian": translator_from_marian},
    check_shape=require_mixer_of_both,
    own_widths=True,
    start_note="a translator with another attention to its own text (mixer), copied but for what that does not have",
    tie=known_and_fixed,
    because="its layers have other attentions, most of which have no scores",
    keep_layers=keep_mixing_layers,
    graph_note=note_of_causal_graph,
)
