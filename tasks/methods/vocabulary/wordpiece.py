"""Vocabularies of WordPiece (BERT, ELECTRA, MPNet): the longest piece is taken at each place of a word, so a text whose
pieces are all kept is divided as before.

Source: Wu et al. 2016, arXiv:1609.08144.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tasks.methods.vocabulary.choice import Model


def wordpiece_characters(model: Model, seen: Collection[str]) -> set[int]:
    """Return the ids of all pieces of one character, at the beginning of a word and inside: with those of ASCII and of
    the characters ``seen``, every word of these can be written without an unknown token."""
    prefix = model.get("continuing_subword_prefix", "##")
    bare = {piece.removeprefix(prefix): piece for piece in model["vocab"]}
    one = {character for character in bare if len(character) == 1 and (character.isascii() or character in seen)}
    return {model["vocab"][form] for each in one for form in (each, prefix + each) if form in model["vocab"]}


def with_wordpieces(model: Model, new_ids: Mapping[int, int]) -> Model:
    """Return the model with the pieces in ``new_ids`` alone, under their new ids."""
    vocabulary = {piece: new_ids[old] for piece, old in model["vocab"].items() if old in new_ids}
    return {**model, "vocab": dict(sorted(vocabulary.items(), key=lambda entry: entry[1]))}
