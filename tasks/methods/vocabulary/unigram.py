"""Vocabularies of a unigram language model (ALBERT, XLNet, DeBERTa-v2): a text is divided into the pieces with the
largest sum of scores. Without some pieces, another division may become the best one: texts are divided as before only
if the best division of each word is still there.

Source: Kudo 2018, arXiv:1804.10959.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tasks.methods.vocabulary.choice import Model

SPACE = "\u2581"
"""The character that stands for a space."""


def pieces_by_place(model: Model) -> dict[str, int]:
    """Return the pieces of a tokenizer's model with their ids, which are their places."""
    return {piece: place for place, (piece, _) in enumerate(model["vocab"])}


def unigram_characters(model: Model, seen: Collection[str]) -> set[int]:
    """Return the ids of all pieces of one character that is ASCII, a space, or among those ``seen``, of the pieces of
    single bytes, and of the unknown token."""
    unknown = set() if model.get("unk_id") is None else {int(model["unk_id"])}
    return unknown | {
        place
        for piece, place in pieces_by_place(model).items()
        if is_byte(piece) or (len(piece) == 1 and (piece.isascii() or piece == SPACE or piece in seen))
    }


def is_byte(piece: str) -> bool:
    """Tell whether a piece stands for one byte of a character that has no piece of its own: ``<0x41>``."""
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def with_scored_pieces(model: Model, new_ids: Mapping[int, int]) -> Model:
    """Return the model with the pieces in ``new_ids`` alone and their old scores, in the order of the new ids."""
    kept = sorted((new, model["vocab"][old]) for old, new in new_ids.items() if old < len(model["vocab"]))
    unknown = model.get("unk_id")
    return {**model, "vocab": [entry for _, entry in kept], "unk_id": None if unknown is None else new_ids[unknown]}
