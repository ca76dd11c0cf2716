"""Vocabularies of byte-pair encoding (RoBERTa, ModernBERT): characters are merged in the order in which the merges were
learned. A piece is kept with every piece that it is merged from, and a merge with its result: the merges of a text
whose pieces are all kept are still there, in the same order, so it is divided as before.

Source: Sennrich et al. 2016, arXiv:1508.07909.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tasks.methods.vocabulary.choice import Model
from tasks.methods.vocabulary.unigram import is_byte


def bpe_characters(model: Model, seen: Collection[str]) -> set[int]:
    """Return the ids of all pieces of one character, of single bytes, and of the unknown token. All 256 characters that
    stand for bytes are among them, so nothing becomes unknown that was not."""
    prefix, suffix = (model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix"))
    unknown = {model["vocab"][model["unk_token"]]} if model.get("unk_token") in model["vocab"] else set()
    return unknown | {
        number
        for piece, number in model["vocab"].items()
        if is_byte(piece) or len(piece.removeprefix(prefix).removesuffix(suffix)) == 1
    }


def merged_from(model: Model) -> dict[int, set[int]]:
    """Return, for each piece that is merged, all pieces that it can be merged from, directly or in several steps."""
    direct: dict[int, set[int]] = {}
    for left, right in pairs_of(model):
        result = model["vocab"][merged(model, left, right)]
        direct.setdefault(result, set()).update({model["vocab"][left], model["vocab"][right]})
    return {piece: all_below(piece, direct) for piece in direct}


def all_below(piece: int, direct: Mapping[int, set[int]]) -> set[int]:
    """Return all pieces below one."""
    found: set[int] = set()
    waiting = [piece]
    while waiting:
        more = direct.get(waiting.pop(), set()) - found
        found |= more
        waiting.extend(more)
    return found


def with_merges(model: Model, new_ids: Mapping[int, int]) -> Model:
    """Return the model with the pieces in ``new_ids`` alone, and the merges of them into each other."""
    vocabulary = {piece: new_ids[old] for piece, old in model["vocab"].items() if old in new_ids}
    merges = [
        [left, right]
        for left, right in pairs_of(model)
        if {left, right, merged(model, left, right)} <= vocabulary.keys()
    ]
    return {**model, "vocab": dict(sorted(vocabulary.items(), key=lambda entry: entry[1])), "merges": merges}


def pairs_of(model: Model) -> list[tuple[str, str]]:
    """Return the merges in their order; older files write a pair as one string with a space."""
    pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
    return [(left, right) for left, right in pairs]


def merged(model: Model, left: str, right: str) -> str:
    """Return the piece that two pieces are merged into."""
    return left + right.removeprefix(model.get("continuing_subword_prefix") or "")
