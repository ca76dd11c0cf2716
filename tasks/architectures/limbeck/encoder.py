"""An encoder with other attentions than BERT's (``tasks/modeling``), made from a BERT: embeddings, feed-forward blocks
and norms are copied, and queries, keys, values and output maps where a mixer has such a map of the same shape.

What a swapped attention lost, a first phase ``attention-outputs`` gives back (Zhang et al. 2024, LoLCATs,
arXiv:2410.10254).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures.albert import SAME_IN_BOTH
from tasks.architectures.architecture import HIDDEN, TWO_MAPS, Architecture, keep_modules, plain_class
from tasks.errors import ModelError
from tasks.modeling.names import in_each_layer

if TYPE_CHECKING:
    from torch import Tensor

LIMBECK = "limbeck-encoder"
READ_BY = {
    "kernel": ("light", "dynamic", "lsra"),
    "rank": ("synth-random-factorized", "linformer"),
    "features": ("favor",),
    "window": ("local",),
}
"""Knobs of a shape that only some mixers read, with the beginnings of their names."""
POSITIONS = "embeddings.position_embeddings.weight"


def limbeck_from_bert(model: Any, shape: Any, kept: Sequence[int]) -> Any:
    """Build an encoder with a layer for each of a BERT's layers ``kept``, and the same kind of head; with ``drawn``,
    all weights are drawn. Raises ModelError for a head that it does not have."""
    import torch

    config = limbeck_config(model.config, shape, len(kept))
    student = limbeck_class_like(model)._from_config(config, dtype=torch.float32)
    if not getattr(shape, "drawn", None):
        with torch.no_grad():
            copy_same(student, model, kept)
    return student


ITS_HEADS = (
    "heads for answers about a whole text (classification, regression, multi-label, ranking) and for vectors "
    "(embedding, retrieval); use start: teacher for this task"
)


def require_head_of_encoder(name: str, start: str, auto_class: str) -> None:
    """Raise ValueError for a student of this architecture whose task it has no head for; ``auto_class`` loads models of
    the task."""
    if start == LIMBECK and auto_class not in ("AutoModelForSequenceClassification", "AutoModel"):
        raise ValueError(f"student {name} starts from {LIMBECK}, which has {ITS_HEADS}")


def limbeck_class_like(model: Any) -> Any:
    """Return the class with the same head as this BERT; raise ModelError if there is none."""
    import transformers as library

    from tasks.modeling.encoder import LimbeckEncoderForSequenceClassification, LimbeckEncoderModel
    from tasks.modeling.registration import register_classes

    register_classes()
    alike: dict[Any, Any] = {
        library.BertModel: LimbeckEncoderModel,
        library.BertForSequenceClassification: LimbeckEncoderForSequenceClassification,
    }
    if plain_class(model) not in alike:
        raise ModelError(f"there is no {LIMBECK} with the head of this {type(model).__name__}: it has {ITS_HEADS}")
    return alike[plain_class(model)]


def limbeck_config(config: Any, shape: Any, layers: int) -> Any:
    """Return the config for a BERT's config and a student's shape. Raises ModelError for more positions than could be
    copied."""
    from tasks.modeling.configuration import LimbeckEncoderConfig

    sizes: dict[str, Any] = {name: getattr(config, name) for name in SAME_IN_BOTH if hasattr(config, name)}
    own = {
        "hidden_size": "hidden",
        "num_attention_heads": "heads",
        "intermediate_size": "feed_forward",
        "max_position_embeddings": "positions",
        "mixer_kernels": "kernel",
        "mixer_rank": "rank",
        "mixer_features": "features",
        "mixer_window": "window",
    }
    require_copied_positions(shape, config.max_position_embeddings)
    asked = {name: getattr(shape, knob, None) for name, knob in own.items()}
    sizes |= {name: value for name, value in asked.items() if value is not None}
    return LimbeckEncoderConfig(
        **sizes,
        num_hidden_layers=layers,
        mixer=getattr(shape, "mixer", None) or "softmax",
        classifier_dropout=config.classifier_dropout,
    )


def require_copied_positions(shape: Any, theirs: int, whose: str = "") -> None:
    """Raise ModelError for more positions than the teacher has learned, unless all weights are drawn; the sentence
    begins by ``whose`` they are."""
    positions = getattr(shape, "positions", None)
    if positions is not None and positions > theirs and not getattr(shape, "drawn", None):
        raise ModelError(
            f"{whose}positions is {positions}, and the teacher has embeddings of {theirs}; give it at most that, or "
            f"set drawn: true"
        )


def copy_same(student: Any, teacher: Any, kept: Sequence[int]) -> None:
    """Copy every weight of the teacher that has the same name and shape in the student; of positions the first."""
    theirs = {without_prefix(name, teacher): value for name, value in teacher.state_dict().items()}
    for name, value in student.state_dict().items():
        parts = without_prefix(name, student).split(".")
        if parts[:2] == ["encoder", "layer"]:
            parts[2] = str(kept[int(parts[2])])
        source = theirs.get(".".join(parts))
        if source is not None and ".".join(parts) == POSITIONS:
            source = source[: len(value)]
        if source is not None and source.shape == value.shape:
            value.copy_(source)


def without_prefix(name: str, model: Any) -> str:
    """Return a parameter's name as it is in the bare encoder."""
    return name.removeprefix(f"{model.base_model_prefix}.")


def require_mixers(teacher: Mapping[str, int | None], shape: Any) -> None:
    """Raise ModelError for a shape that does not fit a teacher's."""
    require_mixers_and_widths(teacher, shape, LIMBECK)


def require_mixers_and_widths(teacher: Mapping[str, int | None], shape: Any, start: str) -> list[str]:
    """Return the mixer of each layer. Raises ModelError for another width than the copied weights have, unknown mixers,
    and knobs that none of its mixers reads."""
    try:
        mixers = in_each_layer(getattr(shape, "mixer", None) or "softmax", shape.layers)
    except ValueError as error:
        raise ModelError(str(error)) from error
    require_own_widths(teacher, shape, start)
    require_halves(mixers, teacher, shape)
    require_read_knobs(mixers, shape)
    return mixers


def require_own_widths(teacher: Mapping[str, int | None], shape: Any, start: str) -> None:
    """Raise ModelError for a shape of other widths than the copied weights have."""
    other = [
        knob
        for knob in ("hidden", "heads", "feed_forward")
        if getattr(shape, knob, None) not in (None, teacher.get(knob))
    ]
    if other and not getattr(shape, "drawn", None):
        raise ModelError(
            f"start: {start} copies its teacher's embeddings, feed-forward blocks and norms, so it has its widths; "
            f"remove {', '.join(other)}, or set drawn: true"
        )


def require_halves(mixers: Sequence[str], teacher: Mapping[str, int | None], shape: Any) -> None:
    """Raise ModelError for a width that its heads do not divide, and for an LSRA without two equal halves of both."""
    width, heads = (getattr(shape, knob, None) or teacher.get(knob) or 1 for knob in ("hidden", "heads"))
    if width % heads:
        raise ModelError(f"width {width} does not divide by {heads} heads; choose heads that divide it")
    if any(name.startswith("lsra") for name in mixers) and (width % 2 or heads % 2):
        raise ModelError(
            f"lsra divides {width} channels and {heads} heads into halves; give it even numbers of both (hidden, heads)"
        )


def require_read_knobs(mixers: Sequence[str], shape: Any) -> None:
    """Raise ModelError for a knob that none of the mixers reads."""
    for knob, readers in READ_BY.items():
        if getattr(shape, knob, None) is not None and not any(name.startswith(readers) for name in mixers):
            raise ModelError(
                f"{knob} is read by mixers whose names begin with {', '.join(readers)}, and the mixers are "
                f"{', '.join(dict.fromkeys(mixers))}; remove {knob}"
            )


def mixers_of_kept_layers(config: Any, kept: Sequence[int]) -> None:
    """Give each layer the mixer of the layer that it replaces, and the width of its convolution."""
    config.mixer = [config.mixer[index] for index in kept]
    config.mixer_kernels = [config.mixer_kernels[index] for index in kept]


def keep_mixed_layers(model: Any, stack: Any, kept: Sequence[int]) -> None:
    """Keep some layers, each with its mixer."""
    keep_modules(model, stack, kept)
    mixers_of_kept_layers(model.config, kept)


def note_of_causal_graph(config: Any) -> str:
    """Return a note on mixers whose graph costs more than their model; empty where a model has none of them."""
    from tasks.modeling.names import SQUARE_IN_GRAPHS

    causal = getattr(config, "decoder_mixer", config.mixer)  # an encoder's graph reads by blocks
    square = [name for name in dict.fromkeys(causal) if name in SQUARE_IN_GRAPHS]
    if not square:
        return ""
    return (
        f"a graph of a model with {' and '.join(square)} reads a text with products of all pairs of its tokens, as "
        f"with softmax: its time and memory grow with the square of the length, where those of the checkpoint grow "
        f"with the length"
    )


def with_classes(model: Any) -> Any:
    """Return the model unchanged; its classes are then known to transformers' auto classes."""
    from tasks.modeling.registration import register_classes

    register_classes()
    return model


def as_mask(mask_BT: Tensor) -> dict[str, Tensor]:
    """Pass the padding mask in float, so that a graph converts it once."""
    import torch

    return {"attention_mask": mask_BT.to(torch.float32)}


LIMBECK_ENCODER = Architecture(
    follow=mixers_of_kept_layers,
    from_teachers={"bert": limbeck_from_bert},
    check_shape=require_mixers,
    own_widths=True,
    start_note="evenly spread layers with other attentions (mixer), copied but for what an attention does not have",
    tie=with_classes,
    signals=(HIDDEN,),
    because="its layers have other attentions, most of which have no scores",
    has_masked_lm=False,
    feed_forward=TWO_MAPS,
    keep_layers=keep_mixed_layers,
    export_mask=as_mask,
)
