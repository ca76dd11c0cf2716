"""A MobileBERT made from a BERT (Sun et al. 2020, arXiv:2004.02984).

The paper trains a teacher with inverted bottlenecks first, so that the blocks of both models have outputs of one width.
A BERT is such a teacher whose bottlenecks are identities: a student has its width between the layers, its heads and its
layers, and is narrow within the layers.
Shape letters: V words, P positions, S segments, N words of a sample, D width between layers, E width of the embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, log2
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.architectures.albert import SAME_IN_BOTH, SAMPLED_WORDS, leading_axes
from tasks.architectures.architecture import plain_class
from tasks.architectures.mobilebert.padding_row import without_padding_row
from tasks.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

NARROWER = 4
"""Width between layers over the width within them, in the paper's model."""
PAPERS_TABLE, PAPERS_STACK = 128, 4
"""Width of the embeddings, and feed-forward blocks in a layer, of the paper's model; its tiny form has two blocks."""
FIXED_EPS = 1e-5
"""What two of a layer's norms add to the variance in transformers, whatever the config says."""


class AskedShape(NamedTuple):
    """The knobs of a student's shape; None where they are left to the teacher, or to the paper."""

    hidden: int | None
    heads: int | None
    bottleneck: int | None
    feed_forward: int | None
    embedding: int | None
    feed_forwards: int | None
    narrow_attention: bool | None
    norm: str | None
    activation: str | None

    @classmethod
    def of(cls, shape: Any) -> AskedShape:
        """Return the knobs of a shape."""
        return cls(*(getattr(shape, name, None) for name in cls._fields))

    @property
    def within_layers(self) -> list[str]:
        """The names of the given knobs that say what is within a narrow layer."""
        return [name for name in self._fields[3:] if getattr(self, name) is not None]


def mobilebert_from_bert(model: Any, shape: Any, kept: Sequence[int]) -> Any:
    """Build a MobileBERT with a layer for each of a BERT's layers ``kept``, and the same kind of head.

    Its embeddings are fitted to the teacher's embedding output, and each layer begins as the identity; what is within
    the layers is drawn. With a bottleneck as wide as the layers, which is none, it has the teacher's own layers and
    computes exactly what the BERT does.

    Raises ModelError for sizes that do not fit the teacher's.
    """
    import torch

    config = mobilebert_config(model.config, shape, len(kept))
    student = mobilebert_class_like(model)._from_config(config, dtype=torch.float32)
    with torch.no_grad():
        if config.use_bottleneck:
            fit_embeddings(student.base_model.embeddings, model.base_model.embeddings, config)
            begin_as_identity(student.base_model, model.base_model, kept)
            copy_heads(student, model)
        else:
            copy_exactly(student, model, kept)
    return without_padding_row(student)


def mobilebert_class_like(model: Any) -> Any:
    """Return MobileBERT's class with the same head as this BERT; raise ModelError if there is none."""
    import transformers as library

    alike = {
        library.BertModel: library.MobileBertModel,
        library.BertForMaskedLM: library.MobileBertForMaskedLM,
        library.BertForMultipleChoice: library.MobileBertForMultipleChoice,
        library.BertForQuestionAnswering: library.MobileBertForQuestionAnswering,
        library.BertForSequenceClassification: library.MobileBertForSequenceClassification,
        library.BertForTokenClassification: library.MobileBertForTokenClassification,
    }
    if plain_class(model) not in alike:
        raise ModelError(
            f"there is no MobileBERT with the head of this {type(model).__name__}; use start: teacher for this task"
        )
    return alike[plain_class(model)]


def mobilebert_config(config: Any, shape: Any, layers: int) -> Any:
    """Return MobileBERT's config for a BERT's config and a student's shape. Raises ModelError for sizes that do not
    fit."""
    from transformers import MobileBertConfig

    width, asked = config.hidden_size, AskedShape.of(shape)
    within = width_within(asked, width, config.num_attention_heads)
    whole, narrow = within == width, bool(asked.narrow_attention)
    sizes = {name: getattr(config, name) for name in SAME_IN_BOTH if hasattr(config, name)}
    if not whole:
        sizes |= {"hidden_dropout_prob": 0.0, "hidden_act": asked.activation or "relu"}
        sizes |= {"intermediate_size": asked.feed_forward or NARROWER * within}
    sizes["attn_implementation"] = config._attn_implementation
    head = config.classifier_dropout
    return MobileBertConfig(
        **sizes,
        num_hidden_layers=layers,
        embedding_size=width if whole else min(asked.embedding or PAPERS_TABLE, width),
        trigram_input=not whole,
        use_bottleneck=not whole,
        intra_bottleneck_size=within,
        use_bottleneck_attention=narrow,
        key_query_shared_bottleneck=not whole and not narrow,
        num_feedforward_networks=1 if whole else asked.feed_forwards or PAPERS_STACK,
        normalization_type="layer_norm" if whole else asked.norm or "no_norm",
        classifier_activation=True,
        classifier_dropout=config.hidden_dropout_prob if head is None else head,
    )


def require_shape_within(teacher: Mapping[str, int | None], shape: Any) -> None:
    """Raise ModelError for a shape that does not fit a teacher's."""
    width_within(AskedShape.of(shape), teacher["hidden"] or 0, teacher["heads"] or 1)


def width_within(asked: AskedShape, width: int, heads: int) -> int:
    """Return the width within the layers.

    Raises ModelError for another width or number of heads than the teacher's, for a bottleneck that is wider than the
    layers or does not divide by the heads, and for knobs of what a whole layer does not have.
    """
    within = asked.bottleneck or max(heads, width // NARROWER // heads * heads)
    for knob, value, there in (("hidden", asked.hidden, width), ("heads", asked.heads, heads)):
        if value not in (None, there):
            raise ModelError(
                f"start: mobilebert has its teacher's {knob} between the layers, {there}, and the shape says {value}; "
                f"remove {knob}, and give the layers a bottleneck"
            )
    if within > width or within % heads:
        raise ModelError(
            f"bottleneck is {within}, with layers {width} wide and {heads} heads; give it a multiple of {heads}, at "
            f"most {width}"
        )
    if within == width and asked.within_layers:
        raise ModelError(
            f"bottleneck is as wide as the layers ({width}), so that the layers are the teacher's own and "
            f"{', '.join(asked.within_layers)} cannot be set; remove that, or make the bottleneck narrower"
        )
    return within


def fit_embeddings(ours: Any, theirs: Any, config: Any) -> None:
    """Fit the embeddings to the teacher's embedding output y: codes of words are y on its first E principal axes, the
    map is the axes, its bias their mean; positions and segments are their mean change of y. The map of three tokens
    begins with that of the middle one alone."""
    import torch
    from torch.nn import functional as F

    words_VD, places_PD, kinds_SD = (
        getattr(theirs, f"{name}_embeddings").weight for name in ("word", "position", "token_type")
    )
    norm: Callable[[Tensor], Tensor] = theirs.LayerNorm
    if config.normalization_type == "layer_norm":  # a norm follows: it is given what the teacher's norm scales
        norm = lambda states: F.layer_norm(states, states.shape[-1:])  # noqa: E731
        ours.LayerNorm.load_state_dict(theirs.LayerNorm.state_dict())
    place_D, some_ND = places_PD.mean(0), words_VD[:: max(1, len(words_VD) // SAMPLED_WORDS)]
    y_VD, y_ND = (norm(some + place_D + kinds_SD[0]) for some in (words_VD, some_ND))
    centre_D, narrow = y_VD.mean(0), config.embedding_size
    axes_DE = leading_axes(y_VD - centre_D, narrow)
    ours.word_embeddings.weight.copy_((y_VD - centre_D) @ axes_DE)
    for name, table, other_D in (("position", places_PD, kinds_SD[0]), ("token_type", kinds_SD, place_D)):
        change = [(norm(some_ND + row_D + other_D) - y_ND).mean(0) for row_D in table]
        getattr(ours, f"{name}_embeddings").weight.copy_(torch.stack(change))
    ours.embedding_transformation.weight.zero_()
    ours.embedding_transformation.weight[:, narrow : 2 * narrow] = axes_DE
    ours.embedding_transformation.bias.copy_(centre_D)


def begin_as_identity(student: Any, teacher: Any, kept: Sequence[int]) -> None:
    """Let every layer add nothing at first; a layer that ends with a LayerNorm has that of the teacher's layer."""
    for layer, number in zip(student.encoder.layer, kept, strict=True):
        layer.output.bottleneck.dense.weight.zero_()
        layer.output.bottleneck.dense.bias.zero_()
        if student.config.normalization_type == "layer_norm":
            theirs = teacher.encoder.layer[number].output.LayerNorm
            layer.output.bottleneck.LayerNorm.load_state_dict(theirs.state_dict())


def copy_heads(student: Any, teacher: Any) -> None:
    """Copy the pooler and the heads after it."""
    ours, theirs = (dict(model.named_modules()) for model in (student, teacher))
    ends = [(f"{prefix}pooler.dense", f"{other}pooler.dense") for prefix, other in (("", ""), ("mobilebert.", "bert."))]
    for name, source in [*ends, *((name, name) for name in ("classifier", "qa_outputs"))]:
        if ours.get(name) is not None and theirs.get(source) is not None:
            ours[name].load_state_dict(theirs[source].state_dict())
    if "cls.predictions" in ours:
        copy_words_head(ours["cls.predictions"], theirs["cls.predictions"])


def copy_words_head(ours: Any, theirs: Any) -> None:
    """Copy the masked-LM head. Its first E columns are the codes of words, which say another thing than the teacher's:
    they get the dimensions that matter least there, and begin at zero; the others are the teacher's."""
    import torch

    table_VD, norm = theirs.decoder.weight, theirs.transform.LayerNorm
    weighed_D = (norm.weight.square() + norm.bias.square()) * (table_VD - table_VD.mean(0)).square().sum(0)
    narrow, order_D = ours.decoder.in_features, torch.arange(table_VD.shape[1], device=table_VD.device)
    if narrow < len(order_D):
        order_D = weighed_D.argsort(stable=True)
        ours.dense.weight.copy_(table_VD[:, order_D[narrow:]].T)
    for name in ("dense", "LayerNorm"):
        for kind, value in getattr(theirs.transform, name).named_parameters():
            getattr(ours.transform, name).get_parameter(kind).copy_(value[order_D])
    if narrow < len(order_D):
        ours.transform.LayerNorm.weight[:narrow], ours.transform.LayerNorm.bias[:narrow] = 0.0, 0.0
    ours.bias.copy_(theirs.bias)
    ours.decoder.bias.copy_(theirs.bias)


def copy_exactly(student: Any, teacher: Any, kept: Sequence[int]) -> None:
    """Copy a BERT, module by module.

    Two norms add 1e-5 to the variance, and BERT's 1e-12. What they read is multiplied by a power of two, which makes
    that addition as small, and what else reads it is divided by it: neither rounds anything.
    """
    ours, theirs = student.base_model, teacher.base_model
    scale = 2.0 ** max(0, ceil(log2(FIXED_EPS / teacher.config.layer_norm_eps) / 2))
    ours.embeddings.load_state_dict(theirs.embeddings.state_dict(), strict=False)
    for name in ("word", "position", "token_type"):
        getattr(ours.embeddings, f"{name}_embeddings").weight.mul_(scale)
    for layer, number in zip(ours.encoder.layer, kept, strict=True):
        layer.load_state_dict(theirs.encoder.layer[number].state_dict())
        for value in (*layer.attention.output.LayerNorm.parameters(), *layer.output.dense.parameters()):
            value.mul_(scale)
        layer.intermediate.dense.weight.div_(scale)
    copy_heads(student, teacher)
    if hasattr(student, "cls"):
        for value in student.cls.predictions.transform.LayerNorm.parameters():
            value.div_(scale)
