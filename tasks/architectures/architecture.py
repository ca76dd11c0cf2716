"""The interface of an architecture: the facts and functions of an encoder family that the engine, the recipe and the
exports need.

The default of every field is right for an unknown encoder; the files of this package state the differences.
Shape letters: B batch, T tokens, N tokens that count, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tasks.architectures import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor

HIDDEN, SCORES, STATES = "hidden states", "attention scores", "queries, keys and values"
"""The inner signals that a method may copy."""
OWN_ATTENTION = "its attention adds position terms to the scores inside its own code"
"""The reason why scores cannot be read in several architectures."""

Build = Callable[[Any, Any, Sequence[int]], Any]
"""Builds a student from the teacher's model, the student's shape, and the numbers of the teacher's layers to start
from, counted from 0; returns a model with the same kind of head. The teacher is not changed."""


TWO_MAPS = ("intermediate.dense", "output.dense")
"""Paths of the maps of a feed-forward block in a layer of BERT's kind."""


def any_shape(teacher: Mapping[str, int | None], shape: Any) -> None:
    """Accept a shape: sizes are checked by themselves."""


def unchanged(config: Any, kept: Sequence[int]) -> None:
    """Leave a config unchanged: only the names of its shape depend on the shape."""


def by_table(config: Any) -> bool:
    """Tell whether a model distinguishes more than one segment."""
    return int(getattr(config, "type_vocab_size", 0) or 0) > 1


def everywhere(config: Any, layer: int) -> int | None:
    """Return None: every token attends to every other."""
    return None


def every_layer(config: ModelConfig, layers: int) -> int:
    """Return the depth: each layer has its own weights."""
    return layers


def keep_modules(model: Any, stack: Any, kept: Sequence[int]) -> None:
    """Keep the layers ``kept`` of a stack, in place, and renumber them."""
    layers = [stack[index] for index in kept]
    del stack[:]
    stack.extend(layers)
    for index, layer in enumerate(layers):
        renumber(layer, "layer_idx", index)


def renumber(root: Any, attribute: str, value: int) -> None:
    """Set an integer attribute in every module that has it."""
    for module in root.modules():
        if isinstance(getattr(module, attribute, None), int):
            setattr(module, attribute, value)


def without_note(config: Any) -> str:
    """Return that there is nothing to say of a model."""
    return ""


def as_given(mask_BT: Tensor) -> dict[str, Tensor]:
    """Pass the padding mask unchanged."""
    return {"attention_mask": mask_BT}


def as_bias(mask_BT: Tensor) -> dict[str, Tensor]:
    """Pass the mask as the bias that is added to the scores; otherwise transformers would compute this bias, in a dozen
    operations per call."""
    import torch

    hidden_BT = 1.0 - mask_BT.to(torch.float32)
    return {"attention_mask": hidden_BT[:, None, None, :] * torch.finfo(torch.float32).min}


def unfolded(model: Any) -> Any:
    """Return the model unchanged: its graph needs no other form."""
    return model


def nothing_to_tie(model: Any) -> Any:
    """Return the model unchanged: its file has no copies of shared weights."""
    return model


def no_copy(config: ModelConfig, name: str) -> bool:
    """Return False: every stored tensor has weights of its own."""
    return False


@dataclass(frozen=True)
class Architecture:
    """One encoder architecture. ``config`` is a transformers config object or, for parameters typed as a mapping, the
    contents of ``config.json``."""

    # Shape: plain data, read by recipes without torch.
    shape: Mapping[str, str] = field(
        default_factory=lambda: {
            "layers": "num_hidden_layers",
            "hidden": "hidden_size",
            "heads": "num_attention_heads",
            "feed_forward": "intermediate_size",
        }
    )
    """The knobs of a student's shape that the architecture has, each with its name in a config; other knobs are
    refused."""
    follow: Callable[[Any, Sequence[int]], None] = unchanged
    """Makes the rest of a config agree with a new shape; ``kept`` are the positions of its layers in the old config."""
    even_heads: bool = False
    """Whether the size of a head must be even, because rotary positions rotate its numbers in pairs."""
    reserved_positions: bool = False
    """Whether the first positions are reserved for padding."""
    distinct_layers: Callable[[ModelConfig, int], int] = every_layer
    """Returns the number of layers with their own weights, for a config as a mapping and its depth."""

    # Building: students of this architecture out of a teacher of another.
    from_teachers: Mapping[str, Build] = field(default_factory=dict)
    """Functions that build a student of this architecture, by the teacher's ``model_type``; the name of this
    architecture is then a ``start`` in recipes."""
    check_shape: Callable[[Mapping[str, int | None], Any], None] = any_shape
    """Raises ModelError for a student's shape that cannot be built from a teacher, given the teacher's shape."""
    own_widths: bool = False
    """Whether such a student may differ from its teacher in widths."""
    start_note: str = ""
    """Description of that start, for the description in a recipe."""

    tie: Callable[[Any], Any] = nothing_to_tie
    """Shares weights, in place, that a plain folder holds as equal copies, and returns the model: a training must not
    let the copies become different. Or sets weights that must have a value, for example zero for padding. It is called
    after loading and before saving."""
    is_copy: Callable[[ModelConfig, str], bool] = no_copy
    """Tells whether a stored tensor, by its name in the file, is a copy of another."""

    # Input: tokens and segments.
    embeddings: str = "embeddings"
    """Path of the embedding tables in the encoder."""
    summary_last: bool = False
    """Whether the summary token is the last instead of the first; texts are then padded on the left."""
    segments: Callable[[Any], bool] = by_table
    """Tells whether the model takes the segment of each token: the text of a pair that it belongs to."""

    # Reading: the inner signals of a model.
    signals: tuple[str, ...] = (HIDDEN, SCORES, STATES)
    """Inner signals that can be read."""
    because: str = ""
    """The reason why the others cannot be read."""
    reach: Callable[[Any, int], int | None] = everywhere
    """Returns how many tokens to either side a layer attends to; None if it attends to all."""
    last_norm: str = ""
    """Path of a norm after the last layer that is already applied to the last hidden state."""
    state_maps: Mapping[str, str] = field(default_factory=dict)
    """Paths, in a layer, of the maps that compute query, key and value, if attention is computed by the family's own
    code in transformers."""

    # Words: masked language models.
    has_masked_lm: bool = True
    """Whether there is a masked language model of this architecture."""
    word_head: Callable[[Any, Tensor], Tensor] | None = None
    """The masked-LM head: takes a model and states of tokens [N, D], returns logits [N, V]; None if it is not known."""

    # Layers: dropping and replacing.
    layers: tuple[str, ...] = ("encoder.layer",)
    """Possible paths of the stack of layers in the encoder; the first that exists is used."""
    decoder: str = ""
    """Path of a second stack, of the decoder, whose depth is the knob ``decoder_layers`` of a shape; empty if there is
    none."""
    keep_layers: Callable[[Any, Any, Sequence[int]], None] = keep_modules
    """Keeps some layers of a model's stack, in place, before the new depth is written into its config."""
    feed_forward: tuple[str, str] | None = None
    """Paths, in a layer, of the two linear maps of its feed-forward block, over [B, T, D]; None if it has others."""
    stacked: str = ""
    """Path, in a layer, of a list of further feed-forward blocks, each with maps of the same paths; models may be
    without it."""
    stands_alone: bool = False
    """Whether a layer takes a hidden state and returns one, independently of its number, so that it can replace
    another."""
    on_dropping: str = ""
    """A note for users who drop layers."""

    # Export and cost.
    export_mask: Callable[[Tensor], dict[str, Tensor]] = as_given
    """Returns the keyword arguments by which an exported graph passes the padding mask [B, T] to the model."""
    for_export: Callable[[Any], Any] = unfolded
    """Returns the model whose graph is traced; its answers do not change. For example, norms may be folded into other
    weights."""
    graph_note: Callable[[Any], str] = without_note
    """Returns a note for users of the graph of a model, from its config; empty where there is none."""
    plain: bool = False
    """Whether FLOPs are computed by formula: all its work is self-attention, two feed-forward maps per layer, a pooler
    and a head."""
    always_widens: bool = False
    """Whether embeddings are projected to the width of the layers even if they already have that width."""


UNKNOWN = Architecture(
    signals=(HIDDEN,),
    because="no check of its attention exists here",
    layers=("encoder.layer", "transformer.layer", "encoder.albert_layer_groups", "layer", "layers"),
)
"""An encoder without a file here: only features that every encoder has are used."""


def plain_class(model: Any) -> Any:
    """Return the class of transformers of a model; a class of our own that extends one states it."""
    return getattr(type(model), "plain_class", type(model))
