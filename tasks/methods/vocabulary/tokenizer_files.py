"""A tokenizer with fewer pieces: its ``tokenizer.json``, of any kind of model.

Source: Abdaoui et al. 2020, arXiv:2010.05609. The order of the old ids is kept, so the first special tokens keep their
places. V is the number of pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.errors import ModelError
from tasks.methods.vocabulary.bpe import bpe_characters, merged_from, with_merges
from tasks.methods.vocabulary.choice import Model, characters_of, kept_pieces
from tasks.methods.vocabulary.unigram import pieces_by_place, unigram_characters, with_scored_pieces
from tasks.methods.vocabulary.wordpiece import with_wordpieces, wordpiece_characters

Document = Mapping[str, Any]
"""A ``tokenizer.json``."""


@dataclass(frozen=True)
class TokenizerModel:
    """The functions of one kind of tokenizer."""

    pieces_of: Callable[[Model], dict[str, int]]
    characters: Callable[[Model, Collection[str]], set[int]]
    parts_of: Callable[[Model], dict[int, set[int]]]
    reduced: Callable[[Model, Mapping[int, int]], Model]


def pieces_by_number(model: Model) -> dict[str, int]:
    """Return the pieces of a model that lists each with its id."""
    return dict(model["vocab"])


def found_in_one_step(model: Model) -> dict[int, set[int]]:
    """Return the pieces that others are reached by: none."""
    return {}


TOKENIZER_MODELS = {
    "WordPiece": TokenizerModel(pieces_by_number, wordpiece_characters, found_in_one_step, with_wordpieces),
    "Unigram": TokenizerModel(pieces_by_place, unigram_characters, found_in_one_step, with_scored_pieces),
    "BPE": TokenizerModel(pieces_by_number, bpe_characters, merged_from, with_merges),
}


def tokenizer_model_of(document: Document) -> TokenizerModel:
    """Return the kind of a tokenizer; raise ModelError for one whose pieces cannot be chosen."""
    name = document["model"].get("type")
    if name not in TOKENIZER_MODELS:
        raise ModelError(f"the tokenizer is of kind {name}; pieces are removed from {', '.join(TOKENIZER_MODELS)}")
    return TOKENIZER_MODELS[name]


def ids_to_keep(document: Document, counts_V: np.ndarray, *, most: int | None, floor: int) -> list[int]:
    """Return the old ids that stay, in order: added and special tokens, single characters, and the pieces that
    ``counts_V`` [V] chooses (``kept_pieces``)."""
    kind, model = tokenizer_model_of(document), document["model"]
    pieces = kind.pieces_of(model)
    added = {int(token["id"]) for token in document["added_tokens"]}
    seen = characters_of([piece for piece, number in pieces.items() if counts_V[number]])
    below = kind.parts_of(model)
    counts_V = np.where(np.isin(np.arange(len(counts_V)), list(pieces.values())), counts_V, 0)
    required = added | kind.characters(model, seen)
    return kept_pieces(counts_V, required, lambda piece: below.get(piece, set()), most=most, floor=max(floor, 1))


def with_pieces(document: Document, kept: Collection[int]) -> Document:
    """Return a ``tokenizer.json`` with the pieces of these old ids alone, numbered from 0 in their old order."""
    new_ids = {old: new for new, old in enumerate(sorted(kept))}
    padding = document.get("padding")
    return {
        **document,
        "model": tokenizer_model_of(document).reduced(document["model"], new_ids),
        "added_tokens": [{**token, "id": new_ids[token["id"]]} for token in document["added_tokens"]],
        "post_processor": renumbered(document.get("post_processor"), new_ids),
        "padding": padding and {**padding, "pad_id": new_ids[padding["pad_id"]]},
    }


def renumbered(processor: Any, new_ids: Mapping[int, int]) -> Any:
    """Return a step after tokenization with the new ids of the special tokens that it adds: a template's lists of ids,
    and the pairs of a token and its id that other steps have."""
    if isinstance(processor, dict):
        return {
            name: [new_ids[one] for one in value] if name == "ids" else renumbered(value, new_ids)
            for name, value in processor.items()
        }
    if isinstance(processor, list):
        pair = len(processor) == 2 and isinstance(processor[0], str) and type(processor[1]) is int
        return [processor[0], new_ids[processor[1]]] if pair else [renumbered(one, new_ids) for one in processor]
    return processor
