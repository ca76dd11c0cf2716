"""The interface of an architecture: what the engine, the recipe and the exports ask of a family of encoders.

Every field has the value of an encoder about which nothing is known; a file of this room states the rest.
Shape letters: B batch, T tokens, N tokens that count, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

HIDDEN, SCORES, STATES = "hidden states", "attention scores", "queries, keys and values"
"""The inner signals that a method may copy."""
OWN_ATTENTION = "its attention adds terms of position to the scores inside of its own code"
"""Why scores cannot be read of several architectures."""

Build = Callable[[Any, Any, Sequence[int]], Any]
"""Builds a student: takes the teacher's model, the student's shape, and the teacher's layers that it starts from,
counted from 0; returns a model with the same kind of head. The teacher is left as it is."""


def unchanged(config: Any, kept: Sequence[int]) -> None:
    """Leave a config as it is: the names of its shape are all there is to change."""


def by_table(config: Any) -> bool:
    """Tell whether a model has more than one kind of segment to tell apart."""
    return int(getattr(config, "type_vocab_size", 0) or 0) > 1


def everywhere(config: Any, layer: int) -> int | None:
    """Return None: every token attends to every other."""
    return None


def every_layer(config: Mapping[str, Any], layers: int) -> int:
    """Return the depth: each layer has weights of its own."""
    return layers


def keep_modules(model: Any, stack: Any, kept: Sequence[int]) -> None:
    """Keep the layers ``kept`` of a stack, in place, and number them anew."""
    layers = [stack[index] for index in kept]
    del stack[:]
    stack.extend(layers)
    for index, layer in enumerate(layers):
        renumber(layer, "layer_idx", index)


def renumber(root: Any, attribute: str, value: int) -> None:
    """Set a whole number that modules remember, wherever one of them has it."""
    for module in root.modules():
        if isinstance(getattr(module, attribute, None), int):
            setattr(module, attribute, value)


def as_given(mask_BT: Tensor) -> dict[str, Tensor]:
    """Hand the mask of padding over as it is."""
    return {"attention_mask": mask_BT}


def as_bias(mask_BT: Tensor) -> dict[str, Tensor]:
    """Hand the mask over as the bias that is added to the scores: transformers then builds none of its own, a dozen
    operations in every call."""
    import torch

    hidden_BT = 1.0 - mask_BT.to(torch.float32)
    return {"attention_mask": hidden_BT[:, None, None, :] * torch.finfo(torch.float32).min}


def unfolded(model: Any) -> Any:
    """Return the model as it is: its graph needs no other form."""
    return model


@dataclass(frozen=True)
class Architecture:
    """One architecture of encoders. ``config`` is an object of transformers, or where a mapping is named, the contents
    of ``config.json``."""

    # Shape: plain data, read by recipes without torch.
    shape: Mapping[str, str] = field(
        default_factory=lambda: {
            "layers": "num_hidden_layers",
            "hidden": "hidden_size",
            "heads": "num_attention_heads",
            "feed_forward": "intermediate_size",
        }
    )
    """The knobs of a student's shape that it has, each with its name in a config; one that is not here is refused."""
    follow: Callable[[Any, Sequence[int]], None] = unchanged
    """Makes the rest of a config agree with a new shape, whose layers take the places ``kept``."""
    even_heads: bool = False
    """Whether the size of a head must be even, because positions turn its numbers in pairs."""
    reserved_positions: bool = False
    """Whether the first positions are reserved for padding."""
    distinct_layers: Callable[[Mapping[str, Any], int], int] = every_layer
    """Returns how many layers have weights of their own, of a config as a mapping and its depth."""

    # Building: students of this architecture out of a teacher of another.
    from_teachers: Mapping[str, Build] = field(default_factory=dict)
    """By the teacher's ``model_type``, how a student of this architecture is built from it; the name of this
    architecture is then a ``start`` in recipes."""
    own_widths: bool = False
    """Whether such a student may have widths of its own; otherwise it has its teacher's."""
    start_note: str = ""
    """What that start is, for the description in a recipe."""

    # Input: tokens and segments.
    embeddings: str = "embeddings"
    """Path of the tables of embeddings in the encoder."""
    summary_last: bool = False
    """Whether the summary token is the last and not the first; texts are then padded on the left."""
    segments: Callable[[Any], bool] = by_table
    """Tells whether the model is told which text of a pair a token is from."""

    # Reading: the inner signals of a model.
    signals: tuple[str, ...] = (HIDDEN, SCORES, STATES)
    """Inner signals that can be read."""
    because: str = ""
    """Why the others cannot be read."""
    reach: Callable[[Any, int], int | None] = everywhere
    """Returns how many tokens to either side a layer attends to; None where it attends to all."""
    last_norm: str = ""
    """Path of a norm after the last layer that the last hidden state has passed already."""
    state_maps: Mapping[str, str] = field(default_factory=dict)
    """Paths, in a layer, of the maps that make query, key and value, where attention is computed by transformers."""

    # Words: masked language models.
    has_masked_lm: bool = True
    """Whether there is a masked language model of this architecture."""
    word_head: Callable[[Any, Tensor], Tensor] | None = None
    """The masked-LM head: takes a model and states of tokens [N, D], returns logits [N, V]; None where it is not
    known."""

    # Layers: dropping and replacing.
    layers: tuple[str, ...] = ("encoder.layer",)
    """Paths of the stack of layers in the encoder; the first that is there is taken."""
    keep_layers: Callable[[Any, Any, Sequence[int]], None] = keep_modules
    """Keeps some layers of a model's stack, in place, before the new depth is written into its config."""
    stands_alone: bool = False
    """Whether a layer takes a hidden state and returns one, whatever its number, so that it can replace another."""
    on_dropping: str = ""
    """What a person must know who drops layers."""

    # Export and cost.
    export_mask: Callable[[Tensor], dict[str, Tensor]] = as_given
    """How an exported graph hands the mask of padding [B, T] to the model: the keyword arguments made of it."""
    for_export: Callable[[Any], Any] = unfolded
    """Returns the model of which the graph is traced, with the same answers, for example with its norms folded away."""
    plain: bool = False
    """Whether self-attention, two feed-forward maps a layer, a pooler and a head are all its work: FLOPs by formula."""
    always_widens: bool = False
    """Whether embeddings pass a map to the width of the layers even where they have that width already."""


UNKNOWN = Architecture(
    signals=(HIDDEN,),
    because="nobody has proved here what its attention computes",
    layers=("encoder.layer", "transformer.layer", "encoder.albert_layer_groups", "layer", "layers"),
)
"""An encoder that has no file here: no more is asked of it than of any."""
