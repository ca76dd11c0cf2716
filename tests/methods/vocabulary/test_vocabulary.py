"""Smaller vocabularies of every kind of tokenizer, each trained here: texts whose pieces are all kept are divided as
before, and nothing that could be written becomes unknown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tasks.errors import ModelError, RecipeError
from tasks.methods.vocabulary.bpe import merged_from, with_merges
from tasks.methods.vocabulary.choice import by_frequency, kept_pieces
from tasks.methods.vocabulary.tokenizer_files import TOKENIZER_MODELS, ids_to_keep, with_pieces

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LEARNED = [
    "the film was good and the meal was poor",
    "naïve songs, naïve plots; unbelievably believable endings",
    "Das Ende war überraschend gut, die Über­setzung nicht",
    "a film about films about filming: 1999 frames, 24 a second",
] * 20
USED = ["the film was good", "a naïve plot", "the ending was poor"]


def framed(made: Tokenizer) -> Tokenizer:
    numbers = [(token, made.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=numbers
    )
    made.enable_padding(pad_id=made.token_to_id("[PAD]"), pad_token="[PAD]")
    return made


def wordpiece() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(LEARNED, trainers.WordPieceTrainer(vocab_size=220, special_tokens=SPECIAL))
    return framed(made)


def unigram() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=160, special_tokens=SPECIAL, unk_token="[UNK]")
    made.train_from_iterator(LEARNED, trainer)
    return framed(made)


def byte_pairs() -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="[UNK]"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(LEARNED, trainer)
    return framed(made)


def character_pairs() -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=220, special_tokens=SPECIAL, continuing_subword_prefix="##")
    made.train_from_iterator(LEARNED, trainer)
    return framed(made)


MADE = {one.__name__: one() for one in (wordpiece, unigram, byte_pairs, character_pairs)}


def document_of(made: Tokenizer) -> dict[str, Any]:
    return json.loads(made.to_str())  # type: ignore[no-any-return]


def counts_of(made: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    ids = [number for text in texts for number in made.encode(text).ids]
    return np.bincount(ids, minlength=made.get_vocab_size())


def trimmed(
    made: Tokenizer, texts: Sequence[str], *, most: int | None = None, floor: int = 1
) -> tuple[Tokenizer, list[int]]:
    document = document_of(made)
    kept = ids_to_keep(document, counts_of(made, texts), most=most, floor=floor)
    return Tokenizer.from_str(json.dumps(with_pieces(document, kept))), kept


@pytest.mark.parametrize("name", sorted(MADE))
def test_texts_that_chose_the_pieces_are_divided_as_before(name: str) -> None:
    made = MADE[name]
    after, kept = trimmed(made, USED)
    assert len(kept) == after.get_vocab_size() < made.get_vocab_size()
    for text in USED:
        before, now = made.encode(text, "the film"), after.encode(text, "the film")
        assert now.tokens == before.tokens
        assert [kept[number] for number in now.ids] == before.ids
        assert now.type_ids == before.type_ids
    assert [after.token_to_id(token) for token in SPECIAL] == [made.token_to_id(token) for token in SPECIAL]


@pytest.mark.parametrize("name", ["wordpiece", "byte_pairs", "character_pairs"])
@settings(max_examples=150)
@given(words=st.lists(st.sampled_from(" ".join(LEARNED[:4] + ["filming goods overall"]).split()), max_size=12))
def test_any_text_of_kept_pieces_is_divided_as_before(name: str, words: list[str]) -> None:
    made = MADE[name]
    after, kept = trimmed(made, USED)
    before = made.encode(" ".join(words))
    if set(before.ids) <= set(kept):
        assert after.encode(" ".join(words)).tokens == before.tokens


@pytest.mark.parametrize("name", sorted(MADE))
@settings(max_examples=100)
@given(text=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40))
def test_no_ascii_text_becomes_unknown_that_was_known(name: str, text: str) -> None:
    made = MADE[name]
    after, _ = trimmed(made, USED)
    if "[UNK]" not in made.encode(text).tokens:
        assert "[UNK]" not in after.encode(text).tokens


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_budget_keeps_the_most_frequent_pieces(name: str) -> None:
    made = MADE[name]
    _, least = trimmed(made, [])
    _, everything = trimmed(made, LEARNED)
    after, kept = trimmed(made, LEARNED, most=len(least) + 8)
    assert set(least) < set(kept) < set(everything) and len(kept) <= len(least) + 8
    assert any("film" in piece for piece in after.get_vocab()), "the most frequent word"
    _, frequent = trimmed(made, LEARNED, floor=60)
    assert set(least) <= set(frequent) < set(everything)


def test_characters_of_pieces_that_are_found_stay_though_the_pieces_go() -> None:
    made = MADE["wordpiece"]
    _, least = trimmed(made, [])
    after, _ = trimmed(made, ["überraschend"] * 2 + ["the"] * 9, most=len(least) + 4)
    assert "überraschend" not in after.get_vocab() or "[UNK]" not in after.encode("überraschend").tokens
    assert made.encode("ü").tokens == after.encode("ü").tokens


def test_what_a_merge_needs_is_found_through_every_way_to_it() -> None:
    model = {"vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5}, "merges": ["a b", "b c", "ab c", "a bc"]}
    assert merged_from(model)[5] == {0, 1, 2, 3, 4}
    small = with_merges(model, {0: 0, 1: 1, 2: 2, 4: 3})
    assert small["merges"] == [["b", "c"]] and small["vocab"] == {"a": 0, "b": 1, "c": 2, "bc": 3}


def test_of_equally_frequent_pieces_the_older_one_comes_first() -> None:
    assert by_frequency(np.asarray([0, 3, 5, 3, 1]), 1) == [2, 1, 3, 4]
    assert kept_pieces(np.asarray([0, 3, 5, 3, 1]), {0}, lambda piece: (), most=3, floor=1) == [0, 1, 2]


def test_too_few_pieces_and_other_tokenizers_are_refused_in_a_sentence() -> None:
    with pytest.raises(RecipeError, match=r"keep: 3 is less than the \d+ special tokens and characters"):
        trimmed(MADE["wordpiece"], USED, most=3)
    document = document_of(MADE["wordpiece"])
    document["model"]["type"] = "WordLevel"
    with pytest.raises(ModelError, match=f"of kind WordLevel; pieces are removed from {', '.join(TOKENIZER_MODELS)}"):
        with_pieces(document, [0])


def test_steps_that_hold_a_token_with_its_number_are_renumbered() -> None:
    document = document_of(MADE["byte_pairs"])
    document["post_processor"] = {
        "type": "Sequence",
        "processors": [{"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "trim_offsets": True}],
    }
    found = with_pieces(document, range(300))
    assert found["post_processor"]["processors"][0]["cls"] == ["[CLS]", 2]
    for token in document["added_tokens"]:
        token["id"] += 100
    document["model"]["vocab"] = {piece: number + 100 for piece, number in document["model"]["vocab"].items()}
    document["post_processor"]["processors"][0] |= {"sep": ["[SEP]", 103], "cls": ["[CLS]", 102]}
    document["padding"]["pad_id"] = 100
    found = with_pieces(document, range(100, 400))
    assert found["post_processor"]["processors"][0]["sep"] == ["[SEP]", 3] and found["padding"]["pad_id"] == 0
