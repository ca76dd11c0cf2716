"""Recipe sections on students (shape and start), and sweeps."""

from __future__ import annotations

from difflib import get_close_matches
from re import fullmatch
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tasks.architectures.albert import groups_of, layers_together
from tasks.architectures.known_architectures import ARCHITECTURES
from tasks.errors import ModelError
from tasks.modeling.names import MIXER_NAMES, OWN_TYPES, in_each_layer
from tasks.recipe.distillation import SIGNALS, GeneralDistillation, Intermediate, Prediction, Signal
from tasks.recipe.knobs import (
    LARGEST_INNER,
    LARGEST_LAYERS,
    LARGEST_WIDTH,
    Choices,
    Compared,
    Knobs,
    Name,
    added_knob,
    require_distinct,
    runtime_knob,
)
from tasks.recipe.training import require_buildable

STRATEGY_NAMES = ("top", "bottom", "alternate-odd", "alternate-even", "symmetric", "contribution")
OWN_LAYERS = ("teacher", *STRATEGY_NAMES)
"""Starts from the fine-tuned teacher, or from its pretrained model, with layers left out."""
DRAWN_STARTS = ("embeddings", "random")
"""Starts whose layers are drawn."""


def other_architectures() -> dict[str, str]:
    """Return the architectures that are built from a teacher of another, each with a note about that start."""
    return {name: one.start_note for name, one in ARCHITECTURES.items() if one.from_teachers}


def takes_layers(start: str) -> bool:
    """Tell whether a start takes whole layers of its teacher, also into another architecture."""
    return start in OWN_LAYERS or start in other_architectures()


def named_starts() -> tuple[str, ...]:
    """Return the starts that are neither a folder nor a hub id."""
    return (*OWN_LAYERS, *other_architectures(), *DRAWN_STARTS)


SHARED_LAYERS = {"share": "all|none|attention|ffn|groups:[1-9][0-9]*", "merge": "mean|random|layer:[1-9][0-9]*"}
"""Legal values of knobs about shared layers."""
WITHIN_LAYERS = {"norm": "no_norm|layer_norm", "activation": "relu|gelu"}
"""Legal values of knobs about what stands within a narrow layer."""
OWN_KNOBS = {
    "albert": ("embedding", "fit_steps", *SHARED_LAYERS),
    **dict.fromkeys(OWN_TYPES, ("mixer", "kernel", "rank", "features", "window", "positions", "drawn")),
    "mobilebert": ("embedding", "bottleneck", "feed_forwards", "narrow_attention", *WITHIN_LAYERS),
}
"""Knobs of a shape that only the starts of these names read."""


StageName = Literal["general", "augmentation", "intermediate"]


class Shape(Knobs):
    """The student's architecture: a smaller version of the teacher's."""

    layers: int = Field(ge=1, le=LARGEST_LAYERS, description="Transformer layers.")
    hidden: int | None = Field(None, ge=8, le=LARGEST_WIDTH, description="Width; empty: the teacher's.")
    heads: int | None = Field(None, ge=1, le=LARGEST_WIDTH, description="Attention heads; empty: the teacher's.")
    feed_forward: int | None = Field(
        None, ge=8, le=LARGEST_INNER, description="Inner width of the feed-forward blocks; empty: the teacher's."
    )
    decoder_layers: int | None = added_knob(
        None, "Of models that write, layers of the decoder; empty: the teacher's.", ge=1, le=LARGEST_LAYERS
    )
    embedding: int | None = added_knob(
        None,
        "With start: albert or mobilebert, the width of the embeddings; empty: 128, or the teacher's if that is less.",
        ge=8,
        le=LARGEST_WIDTH,
    )
    share: str | None = added_knob(
        None,
        "With start: albert, which layers share their weights: all, none, or groups:K; attention or ffn: all layers "
        "share that block, and each has its own other block; empty: all.",
    )
    merge: str | None = added_knob(
        None,
        "With start: albert, the start of shared weights: mean of the teacher's layers, layer:N (the N-th of the "
        "layers that share), or random; empty: mean.",
    )
    fit_steps: int | None = added_knob(
        None, "With start: albert, steps that fit narrow embeddings to the teacher's; empty: 200.", ge=0, le=10_000
    )
    bottleneck: int | None = added_knob(
        None,
        "With start: mobilebert, the width within the layers, a multiple of the heads; empty: a quarter of the "
        "teacher's width; the teacher's width: no bottleneck, the very teacher in MobileBERT's architecture.",
        ge=1,
        le=LARGEST_WIDTH,
    )
    feed_forwards: int | None = added_knob(
        None,
        "With start: mobilebert, feed-forward blocks stacked in a layer, each four bottlenecks wide inside unless "
        "feed_forward is set; empty: 4.",
        ge=1,
        le=16,
    )
    narrow_attention: bool | None = added_knob(
        None,
        "With start: mobilebert, whether queries, keys and values read the bottleneck, as in MobileBERT-tiny; empty: "
        "values read the full width, and queries and keys a bottleneck of their own.",
    )
    norm: str | None = added_knob(
        None,
        "With start: mobilebert, no_norm (a scale and a shift, which exports fold away) or layer_norm; empty: no_norm.",
    )
    activation: str | None = added_knob(
        None, "With start: mobilebert, the activation of its feed-forward blocks, relu or gelu; empty: relu."
    )
    mixer: str | tuple[str, ...] | None = added_knob(
        None,
        "With start: limbeck-encoder, limbeck-decoder or limbeck-seq2seq, what stands in place of attention: one name "
        f"for all layers, or but for translators a list with one for each: {', '.join(MIXER_NAMES)}; empty: softmax.",
    )
    kernel: int | tuple[int, ...] | None = added_knob(
        None,
        "With mixer: light, dynamic or lsra, the odd width of the convolution, one number or one for each layer; "
        "empty: 3, 7, 15, 31, 31, and so on.",
    )
    rank: int | None = added_knob(
        None,
        "With mixer: synth-random-factorized, the rank of its table (empty: 8); with linformer, the keys that are left "
        "of all (empty: 128).",
        ge=1,
        le=LARGEST_WIDTH,
    )
    features: int | None = added_knob(
        None,
        "With mixer: favor, the random features of a head; empty: its size times its logarithm.",
        ge=1,
        le=LARGEST_WIDTH,
    )
    window: int | None = added_knob(
        None, "With mixer: local, the tokens of a block; empty: 64.", ge=1, le=LARGEST_WIDTH
    )
    positions: int | None = added_knob(
        None,
        "With a mixer, the longest input in tokens, which is also the size of tables by position; "
        "empty: the teacher's.",
        ge=8,
        le=LARGEST_WIDTH,
    )
    drawn: bool | None = added_knob(
        None, "With a mixer, whether all weights are drawn instead of copied from the teacher."
    )

    @model_validator(mode="after")
    def can_be_built(self) -> Self:
        """Reject a shape that no machine could hold; knobs left to the teacher are bounded by the check of its
        config."""
        require_buildable(self.layers, self.hidden or 8, self.feed_forward or 8)
        return self

    @model_validator(mode="after")
    def can_be_shared(self) -> Self:
        """Reject an unknown way to share layers, to begin with shared ones, or of what stands within a layer."""
        for knob, legal in (SHARED_LAYERS | WITHIN_LAYERS).items():
            value = getattr(self, knob)
            if value is not None and not fullmatch(legal, value):
                raise ValueError(
                    f"{knob} is {value!r}; legal are {legal.replace('[1-9][0-9]*', 'N').replace('|', ', ')}"
                )
        if self.share is not None:
            try:
                groups_of(self.share, self.layers)
            except ModelError as error:
                raise ValueError(str(error)) from error
        if self.merge is not None:
            require_merged(self.merge, self.share or "all", self.layers)
        return self

    @model_validator(mode="after")
    def can_be_mixed(self) -> Self:
        """Reject unknown mixers, and another number of them, or of widths, than layers."""
        if self.mixer is not None:
            in_each_layer(self.mixer, self.layers)
        for width in [] if self.kernel is None else [self.kernel] if isinstance(self.kernel, int) else self.kernel:
            if width < 1 or width % 2 == 0:
                raise ValueError(f"kernel is {width}; give an odd number, so that a token stands in the middle")
        if isinstance(self.kernel, tuple) and len(self.kernel) != self.layers:
            raise ValueError(f"kernel has {len(self.kernel)} widths for {self.layers} layers; give one for each")
        return self


def require_merged(merge: str, share: str, layers: int) -> None:
    """Raise ValueError for a start of shared weights where none are shared, and for a layer that is not among each set
    of those that share."""
    (kind, _, number), together = merge.partition(":"), layers_together(share, layers)
    if together == 1 < layers:
        raise ValueError(
            f"merge is the start of shared weights, and with share: {share} no two of {layers} layers share any; "
            f"remove merge"
        )
    if kind == "layer" and int(number) > together:
        raise ValueError(
            f"merge: {merge} names one of the layers that share weights, and with share: {share} these are {together} "
            f"of {layers} each; give layer:1 to layer:{together}, or mean"
        )


class Student(Shape, Compared):
    """One small model; several students are branches of one run."""

    name: Name = runtime_knob(..., "Short name, for example 4x312.")
    role: Literal["student", "baseline"] = Field(
        "student", description="A baseline is scored for comparison and never becomes champion."
    )
    start: str = Field(
        "teacher",
        description="teacher: evenly spread layers of it; a strategy of layer dropping: the layers that remain; "
        + "".join(f"{name}: {note}; " for name, note in other_architectures().items())
        + "embeddings: the teacher's, projected; random; or a folder or hub id.",
    )
    origin: Literal["finetuned", "pretrained"] = Field(
        "finetuned", description="Source of the layers of the start: the fine-tuned teacher, or its pretrained model."
    )
    stages: tuple[StageName, ...] | None = Field(
        None, description="Optional stages of this student; empty: all stages of the recipe that its start allows."
    )
    signal: Signal = Field("teacher", description=SIGNALS)
    general: GeneralDistillation | None = added_knob(
        None, "This student's own distillation on general text, instead of the recipe's."
    )
    intermediate: Intermediate | None = Field(
        None, description="This student's own first phase, instead of the recipe's."
    )
    prediction: Prediction | None = Field(None, description="This student's own second phase, instead of the recipe's.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0,), min_length=1, description="One training per seed; figures are means over them."
    )

    @model_validator(mode="after")
    def seeds_differ(self) -> Self:
        """Reject repeated seeds: they would count one training twice."""
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} repeat; give each seed once")
        return self

    @model_validator(mode="after")
    def nothing_is_idle(self) -> Self:
        """Reject a misspelt start, and settings without effect: an origin of layers if none are taken, a first phase
        that the student skips."""
        require_start(self.name, self.start)
        if self.origin == "pretrained" and not takes_layers(self.start):
            raise ValueError(
                f"student {self.name}: origin is the source of the start's layers, and start: {self.start} has no "
                f"layers; remove origin"
            )
        if self.intermediate is not None:
            require_inner_phase(self.name, self.signal, self.stages)
        return self


def require_start(name: str, start: str) -> None:
    """Raise ValueError for a misspelt start, which would be taken for a folder."""
    near = [] if start in named_starts() else get_close_matches(start, named_starts(), 1, 0.8)
    if near:
        raise ValueError(
            f"student {name}: unknown start {start!r}; did you mean {near[0]!r}? A folder of that name is written "
            f"./{start}"
        )


def require_inner_phase(name: str, signal: str, stages: tuple[StageName, ...] | None) -> None:
    """Raise ValueError for a student with a first phase of its own that it would skip."""
    if signal == "labels":
        raise ValueError(
            f"student {name} learns from labels alone, but has an intermediate phase; set signal: teacher, or remove "
            f"intermediate"
        )
    if stages is not None and "intermediate" not in stages:
        raise ValueError(
            f"student {name} has an intermediate phase that is not in its stages; add intermediate to them, or "
            f"remove the phase"
        )


class Sweep(Knobs):
    """Find out how many layers the task needs: ``limbeck sweep`` tries every strategy at every number of layers,
    trained as in layer_dropping."""

    strategies: tuple[Annotated[str, Choices(*STRATEGY_NAMES, "greedy")], ...] | None = Field(
        None, description="Strategies to try, greedy among them; empty: those of layer_dropping, or all six others."
    )
    drop: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        None, description="Numbers of layers to remove; empty: those of layer_dropping, or all."
    )
    seeds: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None, description="Seeds of each candidate; empty: those of layer_dropping, or 0, 1, 2."
    )
    halving: bool = Field(
        False,
        description="Train all candidates with a quarter of the steps and one seed first; the better half continues "
        "(arXiv:1502.07943).",
    )
    try_steps: int = Field(
        100, ge=1, description="Steps of each try of the greedy strategy (Peer et al. 2021, arXiv:2105.14839)."
    )

    @model_validator(mode="after")
    def choices_differ(self) -> Self:
        """Reject an empty list, which would try nothing, and repeated values, which would count one training twice."""
        for what in ("strategies", "drop", "seeds"):
            if getattr(self, what) == ():
                raise ValueError(f"{what} is an empty list; name at least one, or remove it")
            require_distinct(getattr(self, what), what)
        return self


def require_narrow_embedding(student: Student, width: int) -> None:
    """Raise ModelError for embeddings wider than the layers, which save nothing."""
    if student.embedding is not None and student.embedding > width:
        raise ModelError(
            f"student {student.name}: embedding is {student.embedding}, and its layers are {width} wide; give it at "
            f"most {width}"
        )


def general_start(student: Student) -> bool:
    """Tell whether general distillation can begin with a student's start: one that does not use the fine-tuned
    teacher."""
    return student.start in DRAWN_STARTS or (takes_layers(student.start) and student.origin == "pretrained")
