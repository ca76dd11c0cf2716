"""The methods of distillation that a phase may name, each with its own knobs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, JsonValue, model_validator

from tasks.architectures import ModelConfig
from tasks.architectures.architecture import HIDDEN, SCORES, STATES
from tasks.architectures.requirements import require_alone, require_global, require_signal, require_words
from tasks.errors import ModelError
from tasks.recipe.knobs import Knobs, added_knob
from tasks.recipe.training import Training


class Sizes(NamedTuple):
    """The shape of a model, as far as methods depend on it."""

    layers: int
    width: int
    heads: int


class Method(Knobs):
    """Knobs of one method that copies a teacher's inner layers. Each method declares its name, and checks which models
    it cannot serve."""

    called: ClassVar[str]
    """Its name in a recipe, and in the dict of objectives."""
    weights: ClassVar[tuple[str, ...]] = ()
    """The knobs that weigh its loss terms, for methods in which they may be zero."""

    @model_validator(mode="after")
    def copies_something(self) -> Self:
        """Reject a method whose weights are all 0: its loss would have no gradient."""
        if self.weights and not any(getattr(self, name) for name in self.weights):
            raise ValueError(
                f"{', '.join(self.weights)} are all 0, so nothing would be distilled; set one of them greater than "
                f"0, or remove the phase"
            )
        return self

    def check(self, where: str, teacher: ModelConfig, ours: Sizes, theirs: Sizes) -> None:
        """Raise ModelError if a student of these sizes cannot copy from this teacher; ``teacher`` is its config,
        ``where`` the section of the recipe."""


class Matching(Method):
    """Distil hidden states and attention scores of mapped layers (Jiao et al. 2019, TinyBERT, arXiv:1909.10351)."""

    called = "layers"
    weights = ("hidden", "attention")

    layer_map: Literal["uniform", "last", "skip", "divisible", "kept"] = Field(
        "uniform",
        description="Map from student layers to teacher layers; kept: the layer of origin, for a student that starts "
        "from whole layers.",
    )
    hidden: float = Field(1.0, ge=0, description="Weight of the hidden-state loss; 0 disables it.")
    attention: float = Field(
        1.0, ge=0, description="Weight of the attention-score loss; 0 disables it. Needs equal head counts."
    )
    projection: Literal["shared", "per_layer", "none"] = Field(
        "shared", description="Linear map from the student's width to the teacher's."
    )
    formula: Literal["masked", "paper"] = Field(
        "masked",
        description="masked: padding is excluded; paper: means over rows padded to max_length, as in the authors' "
        "code.",
    )

    def check(self, where: str, teacher: ModelConfig, ours: Sizes, theirs: Sizes) -> None:
        """Check that layers, widths and heads match where they are compared, and that the family exposes the compared
        signals."""
        for signal, weight in ((SCORES, self.attention), (HIDDEN, self.hidden)):
            if weight:
                require_signal(teacher, signal, where)
        if self.attention and ours.heads != theirs.heads:
            raise ModelError(
                f"{where}: {ours.heads} heads against the teacher's {theirs.heads}; attention scores need equal "
                f"heads; set matching.attention: 0"
            )
        if self.projection == "none" and ours.width != theirs.width:
            raise ModelError(
                f"{where}: projection none needs equal widths, here {ours.width} and {theirs.width}; use "
                f"projection: shared"
            )
        if self.layer_map == "skip" and ours.layers == 1:
            raise ModelError(
                f"{where}: layer_map skip copies no layer for a student of 1 layer; use layer_map: uniform"
            )
        if self.layer_map == "divisible" and theirs.layers % ours.layers:
            raise ModelError(
                f"{where}: {theirs.layers} teacher layers do not divide by {ours.layers}; use layer_map: uniform"
            )


class Relations(Method):
    """Distil the relations of tokens by queries, keys and values, from one teacher layer to the student's last (Wang et
    al. 2020, MiniLMv2, arXiv:2012.15828)."""

    called = "relations"
    weights = ("query", "key", "value")

    layer: int | None = Field(
        None,
        ge=1,
        description="The teacher's layer, counted from 1; empty: its last. For large teachers an upper middle layer "
        "is better.",
    )
    heads: int | None = Field(
        None,
        ge=1,
        description="Relation heads; empty: the largest number up to 48 that divides both widths. Attention heads "
        "may differ.",
    )
    query: float = Field(1.0, ge=0, description="Weight of the relation between queries.")
    key: float = Field(1.0, ge=0, description="Weight of the relation between keys.")
    value: float = Field(1.0, ge=0, description="Weight of the relation between values.")

    def check(self, where: str, teacher: ModelConfig, ours: Sizes, theirs: Sizes) -> None:
        """Check that the layer exists, that the relation heads divide both widths, and that the family exposes queries,
        keys and values."""
        require_signal(teacher, STATES, where)
        if self.layer is not None and self.layer > theirs.layers:
            raise ModelError(
                f"{where}: relations.layer is {self.layer}, and the teacher has layers 1 to {theirs.layers}; choose "
                f"one of them"
            )
        if self.heads is not None and (ours.width % self.heads or theirs.width % self.heads):
            raise ModelError(
                f"{where}: {self.heads} relation heads do not divide the widths {ours.width} and {theirs.width}; "
                "choose a number that divides both, or remove relations.heads"
            )


class Triple(Method):
    """Distil softened predictions of masked words and directions of the last hidden states, and learn the masked words
    (Sanh et al. 2019, DistilBERT, arXiv:1910.01108)."""

    called = "triple"
    weights = ("soft", "words", "direction")

    soft: float = Field(
        5.0, ge=0, description="Weight of the distillation loss on the teacher's softened word predictions."
    )
    words: float = Field(2.0, ge=0, description="Weight of the masked-language-modelling loss.")
    direction: float = Field(
        1.0, ge=0, description="Weight of the angle between the last hidden states; needs equal widths."
    )
    temperature: float = Field(2.0, gt=0, description="Divides both logits.")
    mask_share: float = Field(
        0.15,
        gt=0,
        lt=1,
        description="Share of a batch's tokens that are predicted; rare tokens are sampled more often.",
    )
    where: Literal["all", "masked"] = added_knob(
        "all", "Tokens that are compared with the teacher's: all, or the masked ones only, as MobileBERT does."
    )

    def check(self, where: str, teacher: ModelConfig, ours: Sizes, theirs: Sizes) -> None:
        """Check that the masked-LM head is known, and that widths are equal if directions are compared."""
        require_words(teacher, where)
        if self.direction and ours.width != theirs.width:
            raise ModelError(
                f"{where}: directions of hidden states need equal widths, here {ours.width} and {theirs.width}; "
                "set triple.direction: 0, or remove hidden"
            )


class Replacing(Method):
    """No distillation loss: the student's layers randomly replace the teacher's during training on the task (Xu et al.
    2020, BERT-of-Theseus, arXiv:2002.02925)."""

    called = "replacing"

    first: float = Field(0.3, gt=0, le=1, description="Replacement probability of a layer at the first step.")
    share: float = Field(
        0.5, ge=0, le=1, description="Share of the steps over which the probability rises linearly to 1."
    )

    def check(self, where: str, teacher: ModelConfig, ours: Sizes, theirs: Sizes) -> None:
        """Check that the family's layers can be replaced one by one, and that the student has the teacher's width and
        heads."""
        require_alone(teacher, where)
        if ours[1:] != theirs[1:]:
            raise ModelError(
                f"{where}: a layer can replace the teacher's only with the same width and heads; remove hidden, "
                f"heads and feed_forward"
            )


class FeatureMaps(Method):
    """Distil the output and the attention of each layer, layer after layer, then predictions of masked words (Sun et
    al. 2020, MobileBERT, arXiv:2004.02984)."""

    called = "feature-maps"
    weights = ("hidden", "mean", "variance", "attention")

    transfer: Literal["progressive", "joint", "auxiliary"] = Field(
        "progressive",
        description="progressive: layers take turns, from the first to the last, then words; joint: all layers at "
        "once, then words; auxiliary: all layers and words at once.",
    )
    freeze: Literal["soft", "hard"] = Field(
        "soft", description="With transfer: progressive, earlier layers learn at a tenth of the rate, or not at all."
    )
    share: float = Field(
        0.5, gt=0, lt=1, description="Share of the steps in which layers are transferred, where words come after them."
    )
    formula: Literal["normalised", "paper"] = Field(
        "normalised",
        description="normalised: outputs at mean 0 and variance 1, and their means and variances, as in the authors' "
        "code; paper: outputs as they are.",
    )
    hidden: float = Field(100.0, ge=0, description="Weight of the difference of outputs; the paper's formula needs 1.")
    mean: float = Field(5000.0, ge=0, description="Weight of the difference of the tokens' means, if normalised.")
    variance: float = Field(5.0, ge=0, description="Weight of the difference of their variances, if normalised.")
    attention: float = Field(1.0, ge=0, description="Weight of the attention distributions; needs equal head counts.")
    predictions: float = Field(
        1.0, ge=0, description="Weight of the predictions of masked words, on general text; 0: none."
    )
    words: float = Field(
        0.5, ge=0, le=1, description="Weight of the masked words themselves relative to the teacher's predictions."
    )
    temperature: float = Field(1.0, gt=0, description="Divides the logits of both models' words.")
    mask_share: float = Field(
        0.15,
        gt=0,
        lt=1,
        description="Share of a batch's tokens that are predicted; rare tokens are sampled more often.",
    )

    @model_validator(mode="after")
    def moments_count(self) -> Self:
        """Reject a formula that leaves out all that has a weight."""
        if self.formula == "paper" and not self.hidden and not self.attention:
            raise ValueError(
                "hidden and attention are 0, and formula: paper has no means and variances; set one of them greater "
                "than 0, or remove the phase"
            )
        return self

    def check(self, where: str, teacher: ModelConfig, ours: Sizes, theirs: Sizes) -> None:
        """Check that layers and widths are equal, and heads where attention is compared."""
        require_signal(teacher, HIDDEN, where)
        if self.predictions and where.endswith("general_distillation"):
            require_words(teacher, where)
        if self.attention:
            require_global(teacher, where)
            require_signal(teacher, SCORES, where)
        for noun, mine, its in zip(Sizes._fields, ours, theirs, strict=True):
            if mine != its and (noun != "heads" or self.attention):
                raise ModelError(
                    f"{where}: method feature-maps copies layer by layer, and the student has {noun} {mine} against "
                    f"the teacher's {its}; give it {its}, or use method: layers"
                )
        if self.transfer == "auxiliary" and not where.endswith("general_distillation"):
            raise ModelError(
                f"{where}: transfer: auxiliary is beside the predictions of masked words, which only general text has; "
                f"use transfer: joint"
            )


class AttentionOutputs(Method):
    """Copy what each attention block of the teacher returns for the teacher's own states, with a student of other
    attentions (Zhang et al. 2024, LoLCATs, arXiv:2410.10254)."""

    called = "attention-outputs"

    def check(self, where: str, teacher: ModelConfig, ours: Sizes, theirs: Sizes) -> None:
        """Check that widths are equal: a block is given the teacher's states."""
        if ours.width != theirs.width:
            raise ModelError(
                f"{where}: method attention-outputs gives the teacher's states to the student's layers, and the "
                f"student is {ours.width} wide against the teacher's {theirs.width}; remove hidden, or the phase"
            )


class SelfAttention(Method):
    """Distil attention distributions and the relation of values, of the last layers (Wang et al. 2020, MiniLM,
    arXiv:2002.10957)."""

    called = "self-attention"
    weights = ("attention", "value")

    attention: float = Field(1.0, ge=0, description="Weight of the attention distributions; needs equal head counts.")
    value: float = Field(1.0, ge=0, description="Weight of the relation between values.")

    def check(self, where: str, teacher: ModelConfig, ours: Sizes, theirs: Sizes) -> None:
        """Check that head counts are equal, that the family exposes scores and values, and that all of its layers have
        global attention."""
        require_global(teacher, where)
        require_signal(teacher, SCORES, where)
        require_signal(teacher, STATES, where)
        if ours.heads != theirs.heads:
            raise ModelError(
                f"{where}: {ours.heads} heads against the teacher's {theirs.heads}; method self-attention needs "
                f"equal heads, relations does not"
            )


def sections_of(phase: type[Knobs]) -> dict[str, str]:
    """Return the section of every method of a phase, by the method's name."""
    kinds = {name: field.annotation for name, field in phase.model_fields.items()}
    return {kind.called: name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Method)}


def method_of(phase: Any) -> Method:
    """Return the knobs of a phase's chosen method."""
    found: Method = getattr(phase, sections_of(type(phase))[phase.method])
    return found


class ByMethod(Training):
    """A phase that copies the teacher's inner layers by one of several methods; only the knobs of the chosen method
    count, also in its key."""

    method: str = Field(description="The method by which inner layers are copied.")

    @model_validator(mode="after")
    def only_the_chosen(self) -> Self:
        """Reject knobs of a method that is not chosen: nothing would read them. Default values pass, because a form
        fills in every section."""
        for method, section in sections_of(type(self)).items():
            if (
                method != self.method
                and section in self.model_fields_set
                and getattr(self, section) != type(self).model_fields[section].default
            ):
                raise ValueError(
                    f"{section} belongs to method: {method}, and the method is {self.method}; set method: {method}, "
                    f"or remove {section}"
                )
        return self

    def key_values(self) -> dict[str, JsonValue]:
        """Return the knobs that determine the phase's result, without those of other methods: adding a method leaves
        existing keys unchanged."""
        others = {section for method, section in sections_of(type(self)).items() if method != self.method}
        return {name: value for name, value in super().key_values().items() if name not in others}
