"""The vocabulary heads of masked language models, so that only those tokens pass through one that are asked about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

Head = Callable[[Tensor], Tensor]
"""Takes token states [N, D], returns vocabulary logits [N, V]."""


def of_bert(model: Any) -> Head:
    """BERT."""
    return lambda states_ND: model.cls(states_ND)


def of_roberta(model: Any) -> Head:
    """RoBERTa and its like."""
    return lambda states_ND: model.lm_head(states_ND)


def of_distilbert(model: Any) -> Head:
    """DistilBERT."""
    return lambda states_ND: model.vocab_projector(
        model.vocab_layer_norm(model.activation(model.vocab_transform(states_ND)))
    )


def of_albert(model: Any) -> Head:
    """ALBERT."""
    return lambda states_ND: model.predictions(states_ND)


def of_electra(model: Any) -> Head:
    """ELECTRA's generator."""
    return lambda states_ND: model.generator_lm_head(model.generator_predictions(states_ND))


def of_modernbert(model: Any) -> Head:
    """ModernBERT."""
    return lambda states_ND: model.decoder(model.head(states_ND))


HEADS: dict[str, Callable[[Any], Head]] = {
    "albert": of_albert,
    "bert": of_bert,
    "camembert": of_roberta,
    "distilbert": of_distilbert,
    "electra": of_electra,
    "modernbert": of_modernbert,
    "roberta": of_roberta,
    "xlm-roberta": of_roberta,
}


def vocabulary_head(model: Any) -> Head | None:
    """Return a masked language model's head, or None where its family is not known."""
    return HEADS[model.config.model_type](model) if model.config.model_type in HEADS else None
