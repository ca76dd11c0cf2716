"""Encoders that are asked for hidden tokens, and return, beside the logits of transformers, which token is hidden and
how many nats it takes.

A hidden token of the inputs is a negative number, -1 minus its id (``units.hidden_id``): the encoder's own forward sees
the tokenizer's mask in its place. The class is the encoder's own with one more step, so that folders stay plain ones of
transformers. Where some tokens are hidden, a CPU computes the logits of these alone: the map to the vocabulary is more
than half of a small encoder, and one token of seven is hidden. Shape letters: B batch, T tokens, V vocabulary, K hidden
tokens of a batch, row by row, D width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
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
        """Return the outputs of the encoder, its logits [B, T, V] or those of hidden tokens [1, K, V], the tokens
        [B, T] with the hidden ones, and, of a model that does not learn, the nats that each takes [B, T]; 0 for one
        whose logits are not there."""
        encoder: Any = super()
        given_BT = kwargs["input_ids"]
        is_hidden_BT = given_BT < 0
        ids_BT = torch.where(is_hidden_BT, hidden_id(given_BT), given_BT)
        masked_BT = ids_BT.masked_fill(is_hidden_BT, getattr(self.config, MASK_ID))
        places_K = hidden_places(is_hidden_BT)
        with answering_at(encoder.get_output_embeddings(), places_K):
            found = encoder.forward(*args, **{**kwargs, "input_ids": masked_BT, "return_dict": True})
        found[WORD_IDS] = ids_BT
        if not self.training:
            found[NATS] = nats_of_tokens(found.logits, ids_BT, places_K)
        return found


def hidden_places(is_hidden_BT: Tensor) -> Tensor | None:
    """Return the places [K] of hidden tokens among all of a batch; None where the logits of all tokens are computed: on
    a GPU, which would wait for their number, in a graph, whose shapes depend on no values, and where none is hidden."""
    if is_hidden_BT.device.type != "cpu" or torch.compiler.is_compiling() or not bool(is_hidden_BT.any()):
        return None
    return is_hidden_BT.flatten().nonzero()[:, 0]


@contextmanager
def answering_at(words: nn.Module, places_K: Tensor | None) -> Iterator[None]:
    """Let the map to the vocabulary read [1, K, D] instead of [B, T, D]."""
    if places_K is None:
        yield
        return
    hook = words.register_forward_pre_hook(lambda module, given: (given[0].flatten(0, 1)[places_K][None],))
    try:
        yield
    finally:
        hook.remove()


def nats_of_tokens(logits: Tensor, ids_BT: Tensor, places_K: Tensor | None) -> Tensor:
    """Return the nats of tokens [B, T], of logits of all of them or of those at some places."""
    if places_K is None or logits.shape[:2] == ids_BT.shape:
        return nats_of_words(logits, ids_BT)
    nats_S = logits.new_zeros(ids_BT.numel(), dtype=torch.float32)
    nats_S[places_K] = nats_of_words(logits, ids_BT.flatten()[places_K][None])[0]
    return nats_S.view(ids_BT.shape)


class AutoModelForMaskedLM(LoadedByConfig, PlainAutoModel):
    """Loads encoders; a folder is the one that transformers' own ``AutoModelForMaskedLM`` loads."""

    @classmethod
    def class_for(cls, config: Any) -> Any:
        """Return the class for a config. Raises ModelError for a model that finds no hidden words."""
        plain = plain_class_for(PlainAutoModel, config)
        if plain is None or getattr(config, "is_encoder_decoder", False):
            raise ModelError(
                f"a model of type {config.model_type} finds no hidden words; name an encoder that does, such as a bert "
                "or roberta model"
            )
        return class_with(MaskedWords, plain)

    @classmethod
    def state_tokenizer(cls, config: Any, tokenizer: Any) -> None:
        """State the mask of a tokenizer in a config. Raises ModelError for one without."""
        if tokenizer.mask_token_id is None:
            raise ModelError("the tokenizer has no token for a hidden word (mask_token); name a model that has one")
        setattr(config, MASK_ID, tokenizer.mask_token_id)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *model_args: Any, **options: Any) -> Any:
        """Load a folder with its tokenizer's mask. Raises ModelError for a tokenizer without one."""
        from transformers import AutoConfig, AutoTokenizer

        folder = pretrained_model_name_or_path
        config = options.pop("config", None) or AutoConfig.from_pretrained(folder, local_files_only=True)
        cls.state_tokenizer(config, AutoTokenizer.from_pretrained(folder, local_files_only=True))
        return super().from_pretrained(folder, *model_args, config=config, **options)
