"""Encoders that are asked for hidden tokens, and return, beside the logits of transformers, which token is hidden and
how many nats it takes.

A hidden token of the inputs is a negative number, -1 minus its id (``units.hidden_id``): the encoder's own forward sees
the tokenizer's mask in its place. The class is the encoder's own with one more step, so that folders stay plain ones of
transformers. Shape letters: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForMaskedLM as PlainAutoModel

from tasks.errors import ModelError
from tasks.task_types.common_head import LoadedByConfig, class_with, plain_class_for
from tasks.task_types.next_words.document import NATS, WORD_IDS
from tasks.task_types.next_words.models import nats_of_words
from tasks.task_types.units import hidden_id

MASK_ID = "mask_token_id"
"""The entry of a config that names the mask; it is stated at each loading, by the folder's tokenizer."""


class MaskedWords:
    """The part of an encoder that is not of transformers; the other is the encoder's own class."""

    config: Any
    training: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the encoder, the tokens [B, T] with the hidden ones, and, of a model that does not
        learn, the nats that each takes [B, T]."""
        encoder: Any = super()
        given_BT = kwargs["input_ids"]
        is_hidden_BT = given_BT < 0
        ids_BT = torch.where(is_hidden_BT, hidden_id(given_BT), given_BT)
        masked_BT = ids_BT.masked_fill(is_hidden_BT, getattr(self.config, MASK_ID))
        found = encoder.forward(*args, **{**kwargs, "input_ids": masked_BT, "return_dict": True})
        found[WORD_IDS] = ids_BT
        if not self.training:
            found[NATS] = nats_of_words(found.logits, ids_BT)
        return found


class AutoModelForMaskedLM(LoadedByConfig, PlainAutoModel):
    """Loads encoders; a folder is the one that transformers' own ``AutoModelForMaskedLM`` loads."""

    @classmethod
    def class_for(cls, config: Any) -> Any:
        """Return the class for a config. Raises ModelError for a model that finds no hidden words."""
        plain = plain_class_for(PlainAutoModel, config)
        if plain is None or getattr(config, "is_encoder_decoder", False):
            raise ModelError(
                f"a {config.model_type} model finds no hidden words; name an encoder that does, such as a bert or "
                f"roberta model"
            )
        return class_with(MaskedWords, plain)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *model_args: Any, **options: Any) -> Any:
        """Load a folder with its tokenizer's mask. Raises ModelError for a tokenizer without one."""
        from transformers import AutoConfig, AutoTokenizer

        folder = pretrained_model_name_or_path
        config = options.pop("config", None) or AutoConfig.from_pretrained(folder, local_files_only=True)
        mask = AutoTokenizer.from_pretrained(folder, local_files_only=True).mask_token_id
        if mask is None:
            raise ModelError("the tokenizer has no token for a hidden word (mask_token); name a model that has one")
        setattr(config, MASK_ID, mask)
        return super().from_pretrained(folder, *model_args, config=config, **options)
