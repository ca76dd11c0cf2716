"""New encoders with a head for words and one for the order of segments: plain BERT or ALBERT for pretraining.

Papers: Devlin et al. 2018, BERT, arXiv:1810.04805; Lan et al. 2019, ALBERT, arXiv:1909.11942.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.architectures.albert import PAPERS_EMBEDDING, SHARED_PARTS, SHARING, groups_of, tie_parts
from tasks.errors import ModelError
from tasks.recipe.training import Pretraining
from tasks.training.models.attention import own_attention
from tasks.training.models.students import tied

HEAD_DROPOUT = 0.1
"""Dropout before the head of a task in fine-tuning; pretraining has none anywhere."""


def common_config(vocabulary: int, knobs: Pretraining) -> Any:
    """Return the values that the configs of both families have in common."""
    return {
        "vocab_size": vocabulary,
        "num_hidden_layers": knobs.layers,
        "hidden_size": knobs.hidden,
        "num_attention_heads": knobs.heads,
        "intermediate_size": knobs.feed_forward,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": max(knobs.max_length, 64),
        "pad_token_id": 0,
        # BERT's 0.02 is for a width of 768; a narrow model with weights that small learns nothing for hundreds of
        # steps.
        "initializer_range": 0.02 * (768 / knobs.hidden) ** 0.5,
        "attn_implementation": "eager",
    }


def new_bert(vocabulary: int, knobs: Pretraining) -> Any:
    """Return a BERT with random weights."""
    from transformers import BertConfig, BertForPreTraining

    config = BertConfig(**common_config(vocabulary, knobs), classifier_dropout=HEAD_DROPOUT)
    return BertForPreTraining._from_config(config, dtype=torch.float32)


def new_albert(vocabulary: int, knobs: Pretraining) -> Any:
    """Return an ALBERT with random weights, whose layers share what ``share`` says."""
    from transformers import AlbertConfig, AlbertForPreTraining

    config = AlbertConfig(
        **common_config(vocabulary, knobs),
        embedding_size=knobs.embedding or min(PAPERS_EMBEDDING, knobs.hidden),
        num_hidden_groups=groups_of(knobs.share, knobs.layers),
        classifier_dropout_prob=HEAD_DROPOUT,
    )
    if knobs.share in SHARED_PARTS:
        setattr(config, SHARING, knobs.share)
    return tie_parts(AlbertForPreTraining._from_config(config, dtype=torch.float32))


FAMILIES: dict[str, Callable[[int, Pretraining], Any]] = {"bert": new_bert, "albert": new_albert}


def new_encoder(vocabulary: int, knobs: Pretraining, place: torch.device) -> Any:
    """Return a randomly initialised model with both heads."""
    torch.manual_seed(knobs.seed)
    return own_attention(FAMILIES[knobs.family](vocabulary, knobs).to(place))


def load_pretrained(folder: Path, place: torch.device, *, seed: int) -> Any:
    """Load a BERT or an ALBERT that was pretrained, with both heads; a head that it lacks is drawn from ``seed``."""
    from transformers import AutoConfig, AutoModelForPreTraining

    family = AutoConfig.from_pretrained(folder, local_files_only=True).model_type
    if family not in FAMILIES:
        raise ModelError(
            f"pretraining goes on from a model among {', '.join(FAMILIES)}, and this one is of type {family}; "
            "let it begin with a new model (start: random)"
        )
    torch.manual_seed(seed)
    options = {"dtype": torch.float32, "attn_implementation": "eager", "use_safetensors": True}
    model = AutoModelForPreTraining.from_pretrained(folder, local_files_only=True, **options)
    return own_attention(tied(model).to(place))


def word_logits(model: Any, states_PD: Tensor) -> Tensor:
    """Return the logits [P, V] of the head for words."""
    head = model.predictions if model.config.model_type == "albert" else model.cls.predictions
    logits_PV: Tensor = head(states_PD)
    return logits_PV


def order_logits(model: Any, pooled_BD: Tensor) -> Tensor:
    """Return the logits [B, 2] of the head for the order of segments; class 1 is a pair that stands in no text so."""
    head = model.sop_classifier if model.config.model_type == "albert" else model.cls.seq_relationship
    logits_B2: Tensor = head(pooled_BD)
    return logits_B2
