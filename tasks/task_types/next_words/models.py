"""Decoders that return, beside the logits of transformers, which token is next and how many nats it takes.

The class is the decoder's own with one more step, so that folders stay plain ones of transformers. Shape letters: B
batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM as PlainAutoModel
from transformers import AutoModelForMaskedLM

from tasks.errors import ModelError
from tasks.task_types.common_head import LoadedByConfig, PartOfModel, class_with, plain_class_for
from tasks.task_types.next_words.document import NATS, WORD_IDS

SEE_ALL = ("xlnet", "xlm")
"""Models that transformers lists among decoders, and that see all words of a text unless they are told otherwise."""


def next_tokens(ids_BT: Tensor) -> Tensor:
    """Return the token behind each one; behind the last, that one itself, which nothing asks for."""
    return torch.cat([ids_BT[:, 1:], ids_BT[:, -1:]], 1)


def nats_of_words(logits_BTV: Tensor, words_BT: Tensor) -> Tensor:
    """Return minus the logarithm of the probability of each of these tokens [B, T]."""
    wide_BTV = logits_BTV.float()
    return wide_BTV.logsumexp(-1) - wide_BTV.gather(-1, words_BT[..., None])[..., 0]


class NextWords(PartOfModel):
    """The part of a decoder that is not of transformers; the other is the decoder's own class."""

    config: Any
    training: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the decoder, the next tokens [B, T] and, of a model that does not learn, their nats.

        Positions are counted from the first token of a text, also where padding stands before it; the mask is that of
        all tokens, also of those that were read before.
        """
        decoder: Any = super()
        kwargs = self.located(kwargs)
        found = decoder.forward(*args, **{"use_cache": False, **kwargs, "return_dict": True})
        found[WORD_IDS] = next_tokens(kwargs["input_ids"])
        if not self.training:
            found[NATS] = nats_of_words(found.logits, found[WORD_IDS])
        return found

    def located(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the inputs of a call with the positions of their tokens; a call of the layers alone, without the head,
        needs them, too."""
        mask_BT = given.get("attention_mask")
        own: Any = type(self)
        if mask_BT is None or not takes_positions(own):
            return given
        places_BT = (mask_BT.long().cumsum(-1) - 1).clamp(min=0)
        return given | {"position_ids": places_BT[:, -given["input_ids"].shape[1] :]}


@cache
def takes_positions(own: Any) -> bool:
    """Tell whether a decoder is told the positions of its tokens."""
    return "position_ids" in inspect.signature(own.plain_class.forward).parameters


class AutoModelForCausalLM(LoadedByConfig, PlainAutoModel):
    """Loads decoders; a folder is the one that transformers' own ``AutoModelForCausalLM`` loads."""

    @classmethod
    def class_for(cls, config: Any) -> Any:
        """Return the class for a config. Raises ModelError for a model that is no decoder, which would see the words
        that it predicts."""
        plain, sees_all = plain_class_for(PlainAutoModel, config), plain_class_for(AutoModelForMaskedLM, config)
        encoder = sees_all is not None or config.model_type in SEE_ALL
        if plain is None or encoder or getattr(config, "is_encoder_decoder", False):
            raise ModelError(
                f"a model of type {config.model_type} is no decoder that reads a text from left to right, so it cannot "
                "predict the next word; name one, such as a gpt2, llama or qwen3 model"
                + (", or, for texts that are no chats, set task.kind: masked-words" if sees_all is not None else "")
            )
        return class_with(NextWords, plain)
