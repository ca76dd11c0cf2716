"""ALBERT (Lan et al. 2019, arXiv:1909.11942): layers are passes through shared weights, and embeddings are
factorised. An ALBERT is also built from a BERT.

Shape letters: V words, P positions, S segments, N words of a sample, D width of the layers, E width of the embeddings,
K = E - 2 or E - 1 axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures import ModelConfig
from tasks.architectures.architecture import Architecture, as_bias, plain_class
from tasks.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

ALBERT_AND_BERT = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.dense": "attention.output.dense",
    "attention.LayerNorm": "attention.output.LayerNorm",
    "ffn": "intermediate.dense",
    "ffn_output": "output.dense",
    "full_layer_layer_norm": "output.LayerNorm",
}
"""Modules of a layer: ALBERT's names on the left, BERT's on the right."""
SHARING = "limbeck_sharing"
"""Where a config states which part of all layers is shared, when the rest is not; transformers keeps unknown names."""
SHARED_PARTS: dict[str, tuple[str, ...]] = {
    "attention": ("attention",),
    "ffn": ("ffn", "ffn_output", "full_layer_layer_norm"),
}
"""Modules of a layer that ``share: attention`` and ``share: ffn`` share, each block with its norm."""
HEAD_MAPS = {
    "predictions.dense": "cls.predictions.transform.dense",
    "predictions.LayerNorm": "cls.predictions.transform.LayerNorm",
}
"""Modules of the masked-LM head that depend on the width of the embeddings."""
SAME_IN_BOTH = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "id2label",
    "label2id",
    "problem_type",
)
"""Names that BERT's and ALBERT's configs have in common."""
EMBEDDING_TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")
SAMPLED_WORDS = 1000
"""Words over which the change by a position or a segment is a mean."""
PAPERS_EMBEDDING = 128
"""Width of the embeddings in the paper's models."""


def no_more_groups_than_turns(config: Any, kept: Sequence[int]) -> None:
    """Limit the number of groups of shared weights to the number of layers."""
    config.num_hidden_groups = min(config.num_hidden_groups, len(kept))


def groups(config: ModelConfig, layers: int) -> int:
    """Return the number of groups of shared weights, among which all layers are divided."""
    return config.get("num_hidden_groups") or 1


def keep_turns(model: Any, stack: Any, kept: Sequence[int]) -> None:
    """Reduce the number of passes; the model has no layers of its own to delete, only groups that no kept layer uses.

    Raises ModelError if the remaining layers would be divided among the groups in another way.
    """
    depth, groups = int(model.config.num_hidden_layers), int(model.config.num_hidden_groups)
    used = [int(index / (depth / groups)) for index in kept]
    left = sorted(set(used))
    rebuilt = [left[int(turn / (len(kept) / len(left)))] for turn in range(len(kept))]
    if rebuilt != used:
        raise ModelError(
            f"this ALBERT shares {groups} groups among {depth} layers and cannot keep layers {list(kept)}; "
            "keep the same number of layers from each group"
        )
    modules = [stack[group] for group in left]
    del stack[:]
    stack.extend(modules)
    model.config.num_hidden_groups = len(left)


def words(model: Any, states_ND: Tensor) -> Tensor:
    """Return the logits [N, V] of ALBERT's masked-LM head."""
    logits_NV: Tensor = model.predictions(states_ND)
    return logits_NV


def groups_of(sharing: str | None, layers: int) -> int:
    """Return the number of groups of shared weights among ``layers`` layers: 1 for ``all``, k for ``groups:k``. With
    ``attention`` or ``ffn`` every layer is a group, since a plain ALBERT shares whole layers only.

    Raises ModelError for more groups than layers, and where transformers, which divides floating-point numbers, would
    assign a layer to another group than whole numbers do.
    """
    kind, _, count = (sharing or "all").partition(":")
    groups = int(count) if kind == "groups" else 1 if kind == "all" else layers
    if groups > layers:
        raise ModelError(f"share: {sharing} makes {groups} groups of {layers} layers; name at most {layers}")
    if any(int(turn / (layers / groups)) != turn * groups // layers for turn in range(layers)):
        raise ModelError(
            f"share: {sharing} among {layers} layers is assigned differently by different programs, because of "
            f"rounding; choose a number of groups that divides {layers}"
        )
    return groups


def layers_together(sharing: str, layers: int) -> int:
    """Return how many layers have the same weights, at least, in what they share; 1 where no two share any."""
    return layers if sharing in SHARED_PARTS else layers // groups_of(sharing, layers)


def albert_from_bert(model: Any, shape: Any, kept: Sequence[int]) -> Any:
    """Build an ALBERT of a BERT's layers ``kept``, with the same kind of head: each group of shared weights from the
    layers whose place it takes, the embeddings fitted to the teacher's embedding output.

    With a group for every layer and embeddings of the teacher's width, it computes exactly what the BERT does.
    """
    import torch

    sharing = getattr(shape, "share", None)
    groups = groups_of(sharing, len(kept))
    narrow = min(getattr(shape, "embedding", None) or PAPERS_EMBEDDING, model.config.hidden_size)
    student = albert_class_like(model)._from_config(
        albert_config(model.config, len(kept), groups, narrow), dtype=torch.float32
    )
    if sharing in SHARED_PARTS:
        setattr(student.config, SHARING, sharing)
    tie_parts(student)
    with torch.no_grad():
        fill_layers(student.base_model, model.base_model, kept, getattr(shape, "merge", None) or "mean")
        fill_embeddings(student.base_model, model.base_model)
        fill_heads(student, model)
    return student


def albert_class_like(model: Any) -> Any:
    """Return ALBERT's class with the same head as this BERT; every head that ALBERT has is here."""
    from transformers import (
        AlbertForMaskedLM,
        AlbertForMultipleChoice,
        AlbertForQuestionAnswering,
        AlbertForSequenceClassification,
        AlbertForTokenClassification,
        AlbertModel,
        BertForMaskedLM,
        BertForMultipleChoice,
        BertForQuestionAnswering,
        BertForSequenceClassification,
        BertForTokenClassification,
        BertModel,
    )

    alike = {
        BertModel: AlbertModel,
        BertForMaskedLM: AlbertForMaskedLM,
        BertForMultipleChoice: AlbertForMultipleChoice,
        BertForQuestionAnswering: AlbertForQuestionAnswering,
        BertForSequenceClassification: AlbertForSequenceClassification,
        BertForTokenClassification: AlbertForTokenClassification,
    }
    return alike[plain_class(model)]


def albert_config(config: Any, layers: int, groups: int, narrow: int) -> Any:
    """Return ALBERT's config for a BERT's config."""
    from transformers import AlbertConfig

    head = config.classifier_dropout
    sizes: dict[str, Any] = {name: getattr(config, name) for name in SAME_IN_BOTH}
    sizes["attn_implementation"] = config._attn_implementation
    return AlbertConfig(
        **sizes,
        num_hidden_layers=layers,
        num_hidden_groups=groups,
        embedding_size=narrow,
        classifier_dropout_prob=config.hidden_dropout_prob if head is None else head,
    )


def fill_layers(student: Any, teacher: Any, kept: Sequence[int], merge: str) -> None:
    """Set the weights of each group from the teacher's layers whose place it takes, and a part that all layers share
    from all of them: their mean, or the N-th of them (``layer:N``); with ``random``, leave what layers share drawn."""
    import torch

    groups, turns = student.encoder.albert_layer_groups, len(kept)
    every = [teacher.encoder.layer[layer] for layer in kept]
    shared = SHARED_PARTS.get(getattr(student.config, SHARING, ""), ())
    for number, group in enumerate(groups):
        own = [layer for turn, layer in enumerate(every) if turn * len(groups) // turns == number]
        for ours, theirs in ALBERT_AND_BERT.items():
            sources = every if ours.partition(".")[0] in shared else own
            if merge == "random" and (len(sources) > 1 or turns == 1):
                continue
            if merge.startswith("layer:") and len(sources) > 1:
                sources = [sources[int(merge.partition(":")[2]) - 1]]
            for name, value in group.albert_layers[0].get_submodule(ours).named_parameters():
                value.copy_(torch.stack([layer.get_submodule(theirs).get_parameter(name) for layer in sources]).mean(0))


def tie_parts(model: Any) -> Any:
    """Let all layers have the modules of the first one for the part that the config states as shared; return the
    model. Modules are tied and not tensors, so that optimizers, decay and gradients see each shared matrix once."""
    first, *others = (group.albert_layers[0] for group in model.base_model.encoder.albert_layer_groups)
    for part in SHARED_PARTS.get(getattr(model.config, SHARING, ""), ()):
        for layer in others:
            setattr(layer, part, getattr(first, part))
    return model


def is_copied_part(config: ModelConfig, name: str) -> bool:
    """Tell whether a stored tensor is a further copy of a part that all layers share."""
    _, _, place = name.partition("albert_layer_groups.")
    group, *rest = place.split(".")
    return bool(rest) and group != "0" and rest[2] in SHARED_PARTS.get(str(config.get(SHARING)), ())


def fill_embeddings(student: Any, teacher: Any) -> None:
    """Set the embeddings and the map to the width of the layers: copies at the teacher's width, else the fit."""
    import torch

    ours, theirs, widen = student.embeddings, teacher.embeddings, student.encoder.embedding_hidden_mapping_in
    if widen.in_features == widen.out_features:
        ours.load_state_dict(theirs.state_dict())
        torch.nn.init.eye_(widen.weight)
        widen.bias.zero_()
        return
    words_VD, places_PD, kinds_SD = (getattr(theirs, name).weight for name in EMBEDDING_TABLES)
    *codes, map_DE, bias_D = fitted_codes(words_VD, places_PD, kinds_SD, theirs.LayerNorm, widen.in_features)
    for name, values in zip(EMBEDDING_TABLES, codes, strict=True):
        getattr(ours, name).weight.copy_(values)
    widen.weight.copy_(map_DE)
    widen.bias.copy_(bias_D)


def fitted_codes(
    words_VD: Tensor, places_PD: Tensor, kinds_SD: Tensor, norm: Callable[[Tensor], Tensor], narrow: int
) -> tuple[Tensor, ...]:
    """Return codes of width E (``narrow``) for words, positions and segments, and the map [D, E] with its bias [D].

    Fitted is the teacher's embedding output y, not its table, because ALBERT's norm stands before the map and BERT's
    after the sum. The codes are y on its first principal axes. Two of the E dimensions make the norm harmless: codes
    have mean zero, and one dimension fills each code up to the same length, so that the norm divides all of them by
    one number.
    """
    import torch
    from torch.nn.functional import pad

    place_D, some_ND = places_PD.mean(0), words_VD[:: max(1, len(words_VD) // SAMPLED_WORDS)]
    y_VD, y_ND = (norm(words + place_D + kinds_SD[0]) for words in (words_VD, some_ND))
    centre_D = y_VD.mean(0)
    axes_DK = leading_axes(y_VD - centre_D, narrow - 2)
    codes_VK = (y_VD - centre_D) @ axes_DK
    radius = 1.02 * codes_VK.norm(dim=1).max()
    rest_V1 = (radius**2 - codes_VK.square().sum(1, keepdim=True)).sqrt()
    places_PK, kinds_SK = (
        torch.stack([(norm(some_ND + row_D + other_D) - y_ND).mean(0) for row_D in table]) @ axes_DK
        for table, other_D in ((places_PD, kinds_SD[0]), (kinds_SD, place_D))
    )
    spread_KE = zero_mean_axes(narrow).to(words_VD)
    return (
        torch.cat([codes_VK, rest_V1], 1) @ spread_KE,
        pad(places_PK, (0, 1)) @ spread_KE,
        pad(kinds_SK, (0, 1)) @ spread_KE,
        pad(axes_DK, (0, 1)) @ spread_KE * (radius / narrow**0.5),
        centre_D,
    )


def leading_axes(values_VD: Tensor, count: int) -> Tensor:
    """Return the first principal axes [D, K]; signs are fixed, so that every machine builds the same student."""
    import torch

    _, axes_DD = torch.linalg.eigh((values_VD.double().T @ values_VD.double()).cpu())
    axes_DK = axes_DD.flip(1)[:, :count]
    return (axes_DK * axes_DK.gather(0, axes_DK.abs().argmax(0, keepdim=True)).sign()).to(values_VD)


def zero_mean_axes(width: int) -> Tensor:
    """Return ``width - 1`` orthonormal vectors [K, E] whose numbers sum to zero (Helmert's)."""
    import torch

    rows_KE = torch.ones(width - 1, width, dtype=torch.float64).tril()
    numbers_K = torch.arange(1, width, dtype=torch.float64)
    rows_KE[torch.arange(width - 1), torch.arange(1, width)] = -numbers_K
    return rows_KE / (numbers_K * (numbers_K + 1)).sqrt()[:, None]


def fill_heads(student: Any, teacher: Any) -> None:
    """Copy the pooler and the heads after it; a masked-LM head is copied where the embeddings have the width of the
    layers, and otherwise begins with its bias alone, because its own map is as narrow as they are."""
    ours, theirs = (dict(model.named_modules()) for model in (student, teacher))
    same = {name: name for name in ("classifier", "qa_outputs")}
    pooler = {
        "pooler" if student.base_model is student else "albert.pooler": "pooler.dense"
        if teacher.base_model is teacher
        else "bert.pooler.dense"
    }
    wide = student.config.embedding_size == student.config.hidden_size
    for name, source in {**same, **pooler, **(HEAD_MAPS if wide else {})}.items():
        if ours.get(name) is not None and theirs.get(source) is not None:
            ours[name].load_state_dict(theirs[source].state_dict())
    if "predictions" in ours:
        ours["predictions"].bias.copy_(theirs["cls.predictions"].bias)


ALBERT = Architecture(
    feed_forward=("albert_layers.0.ffn", "albert_layers.0.ffn_output"),
    from_teachers={"bert": albert_from_bert},
    start_note="evenly spread layers in ALBERT's architecture, which share weights (share, embedding, merge)",
    follow=no_more_groups_than_turns,
    tie=tie_parts,
    is_copy=is_copied_part,
    distinct_layers=groups,
    layers=("encoder.albert_layer_groups",),
    keep_layers=keep_turns,
    on_dropping="ALBERT's layers share weights: dropping layers saves time, and parameters only where no layer that "
    "stays has the same ones",
    plain=True,
    always_widens=True,
    word_head=words,
    export_mask=as_bias,
)
