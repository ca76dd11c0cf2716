"""DistilBERT, and the construction of a DistilBERT student from a BERT: some of its layers, its word and position
embeddings, its masked-LM head.

Paper: Sanh et al. 2019, DistilBERT, arXiv:1910.01108. There are no token types and no pooler, so BERT's information
that distinguishes two sentences is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures.architecture import Architecture, as_bias, plain_class

if TYPE_CHECKING:
    from torch import Tensor

IN_A_LAYER = {
    "attention.q_lin": "attention.self.query",
    "attention.k_lin": "attention.self.key",
    "attention.v_lin": "attention.self.value",
    "attention.out_lin": "attention.output.dense",
    "sa_layer_norm": "attention.output.LayerNorm",
    "ffn.lin1": "intermediate.dense",
    "ffn.lin2": "output.dense",
    "output_layer_norm": "output.LayerNorm",
}
OUTSIDE = {
    "distilbert.embeddings.word_embeddings.weight": "bert.embeddings.word_embeddings.weight",
    "distilbert.embeddings.position_embeddings.weight": "bert.embeddings.position_embeddings.weight",
    "distilbert.embeddings.LayerNorm.weight": "bert.embeddings.LayerNorm.weight",
    "distilbert.embeddings.LayerNorm.bias": "bert.embeddings.LayerNorm.bias",
    "vocab_projector.weight": "cls.predictions.decoder.weight",
    "vocab_projector.bias": "cls.predictions.bias",
    "vocab_transform.weight": "cls.predictions.transform.dense.weight",
    "vocab_transform.bias": "cls.predictions.transform.dense.bias",
    "vocab_layer_norm.weight": "cls.predictions.transform.LayerNorm.weight",
    "vocab_layer_norm.bias": "cls.predictions.transform.LayerNorm.bias",
}
"""DistilBERT's names on the left, BERT's on the right."""


def parameter_map(layers: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield each of the student's parameters with the teacher's parameter that it starts from; ``layers`` are the
    teacher's, counted from 0."""
    yield from OUTSIDE.items()
    for ours, theirs in enumerate(layers):
        for name, source in IN_A_LAYER.items():
            for kind in ("weight", "bias"):
                yield (
                    f"distilbert.transformer.layer.{ours}.{name}.{kind}",
                    f"bert.encoder.layer.{theirs}.{source}.{kind}",
                )


def from_bert(model: Any, shape: Any, kept: Sequence[int]) -> Any:
    """Build the student of a BERT, with the same kind of head; a classifier's head is randomly initialised, since
    DistilBERT's has another form."""
    import torch

    student = class_like(model)._from_config(config_of(model.config, len(kept)), dtype=torch.float32)
    theirs, ours = (
        {prefixed(name, each): value for name, value in each.state_dict().items()} for each in (model, student)
    )
    with torch.no_grad():
        for name, source in parameter_map(kept):
            if name in ours and source in theirs:
                ours[name].copy_(theirs[source])
    return student


def class_like(model: Any) -> Any:
    """Return DistilBERT's class with the same head as this BERT; every head that DistilBERT has is here."""
    from transformers import (
        BertForMaskedLM,
        BertForMultipleChoice,
        BertForQuestionAnswering,
        BertForSequenceClassification,
        BertForTokenClassification,
        BertModel,
        DistilBertForMaskedLM,
        DistilBertForMultipleChoice,
        DistilBertForQuestionAnswering,
        DistilBertForSequenceClassification,
        DistilBertForTokenClassification,
        DistilBertModel,
    )

    alike = {
        BertModel: DistilBertModel,
        BertForMaskedLM: DistilBertForMaskedLM,
        BertForMultipleChoice: DistilBertForMultipleChoice,
        BertForQuestionAnswering: DistilBertForQuestionAnswering,
        BertForSequenceClassification: DistilBertForSequenceClassification,
        BertForTokenClassification: DistilBertForTokenClassification,
    }
    return alike[plain_class(model)]


def config_of(config: Any, layers: int) -> Any:
    """Return DistilBERT's config for a BERT's config."""
    from transformers import DistilBertConfig

    head = {name: getattr(config, name) for name in ("id2label", "label2id", "problem_type")}
    return DistilBertConfig(  # type: ignore[call-arg]
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        n_layers=layers,
        n_heads=config.num_attention_heads,
        dim=config.hidden_size,
        hidden_dim=config.intermediate_size,
        dropout=config.hidden_dropout_prob,
        activation=config.hidden_act,
        attention_dropout=config.attention_probs_dropout_prob,
        initializer_range=config.initializer_range,
        pad_token_id=config.pad_token_id,
        attn_implementation=config._attn_implementation,
        **head,
    )


def prefixed(name: str, model: Any) -> str:
    """Return a parameter's name as it is in a model with a head."""
    prefix = f"{model.base_model_prefix}."
    return name if model.base_model is not model else prefix + name


def words(model: Any, states_ND: Tensor) -> Tensor:
    """Return the logits [N, V] of DistilBERT's masked-LM head."""
    logits_NV: Tensor = model.vocab_projector(
        model.vocab_layer_norm(model.activation(model.vocab_transform(states_ND)))
    )
    return logits_NV


DISTILBERT = Architecture(
    feed_forward=("ffn.lin1", "ffn.lin2"),
    shape={"layers": "n_layers", "hidden": "dim", "heads": "n_heads", "feed_forward": "hidden_dim"},
    from_teachers={"bert": from_bert},
    start_note="evenly spread layers in DistilBERT's architecture",
    layers=("transformer.layer",),
    plain=True,
    word_head=words,
    stands_alone=True,
    export_mask=as_bias,
)
