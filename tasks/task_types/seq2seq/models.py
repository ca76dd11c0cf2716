"""Models that read a source and write a text: BART, Marian, T5 and their like.

The class is the model's own with one more step, so that folders stay plain ones of transformers. Shape letters: B
batch, T tokens of a source, L tokens of a text, K returned texts of each source.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM as PlainAutoModel

from tasks.errors import ModelError
from tasks.task_types.common_head import LoadedByConfig, PartOfModel, class_with, plain_class_for
from tasks.task_types.seq2seq.target import WRITTEN_IDS
from tasks.task_types.texts.likeliest_words import likeliest_words
from tasks.task_types.units import Writing


def first_token(model: Any) -> int:
    """Return the token that stands before a text. Raises ModelError for a model that states none."""
    found = getattr(model.generation_config, "decoder_start_token_id", None)
    found = getattr(model.config, "decoder_start_token_id", None) if found is None else found
    if found is None and model.config.model_type == "t5":  # its config has no such field
        found = model.config.pad_token_id
    if found is None:
        raise ModelError("the model states no token that begins a text; set decoder_start_token_id in its config.json")
    return int(found)


class ReadsAndWrites(PartOfModel):
    """The part of a model that is not of transformers; the other is the model's own class."""

    config: Any

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the model; with ``written_ids`` [B, L] the logits [B, L, V] of each of these tokens,
        given those before it."""
        own: Any = super()
        written_BL = kwargs.pop(WRITTEN_IDS, None)
        if written_BL is not None:
            start_B1 = torch.full_like(written_BL[:, :1], first_token(self))
            kwargs["decoder_input_ids"] = torch.cat([start_B1, written_BL[:, :-1]], 1)
            kwargs["use_cache"] = False
        return own.forward(*args, **kwargs)


class AutoModelForSeq2SeqLM(LoadedByConfig, PlainAutoModel):
    """Loads models that read and write; a folder is the one that transformers' own class loads."""

    @classmethod
    def class_for(cls, config: Any) -> Any:
        """Return the class for a config. Raises ModelError for a model that writes no text."""
        plain = plain_class_for(PlainAutoModel, config)
        if plain is None:
            raise ModelError(
                f"a model of type {config.model_type} reads a text and writes none; name a model with an encoder and "
                "a decoder, such as a marian, bart or t5 model"
            )
        return class_with(ReadsAndWrites, plain)


def settings_of_writing(model: Any, writing: Writing) -> Any:
    """Return the generation config by which a model writes as ``writing`` says, with the token that begins a text."""
    own = likeliest_words(model, writing)
    own.update(decoder_start_token_id=first_token(model))
    return own


def written_ids(model: Any, ids_BT: Tensor, mask_BT: Tensor, writing: Writing) -> Tensor:
    """Return the tokens that a model writes, of each source its best texts, best first [B * K, L]."""
    own = settings_of_writing(model, writing)
    found: Tensor = model.generate(input_ids=ids_BT, attention_mask=mask_BT, generation_config=own)
    return found[:, 1:]
