"""Word substitution: the rule of the reference, and variants that are the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import DataError, RecipeError
from tasks.methods.text.word_substitution import (
    FUNCTION_WORDS,
    keep_candidates,
    match_case,
    replaceable,
    sample_variant,
)
from tests.methods.oracles import ROOT, Oracle, reads

WORDS = ["A", "good", "film", ",", "never", "dull"]
OPTIONS = [[], ["fine", "bad", "great"], ["movie", "story"], [], ["not"], ["slow", "grey"]]
DRAW = {"probability": 0.5, "seed": 1, "example": 2, "epoch": 3, "field": "text"}


@reads("augmentation_rule", "tokens")
def test_the_rule_equals_the_reference(oracle: Oracle) -> None:
    tokens = oracle.content
    assert len(tokens) == 79
    assert {t["token"]: replaceable(t["token"]) for t in tokens} == {t["token"]: t["replaceable"] for t in tokens}


@pytest.mark.parametrize("word", ["café", "u.s.", "3d", "film-maker", "don't", "##ing", "movie.", "word\n"])
def test_only_plain_letters_are_replaceable(word: str) -> None:
    assert not replaceable(word)


def test_negation_is_never_replaced() -> None:
    assert not any(map(replaceable, ["not", "No", "nor", "won", "didn", "t"]))
    assert all(word == word.lower() and word.isalpha() for word in FUNCTION_WORDS)


@given(st.text(), st.integers(), st.integers(0), st.integers(0))
def test_probability_zero_gives_the_original_text_with_its_spacing(text: str, seed: int, row: int, epoch: int) -> None:
    words = text.split(" ")
    options = [["x"]] * len(words)
    assert sample_variant(words, options, probability=0.0, seed=seed, example=row, epoch=epoch, field="pair") == text


def test_probability_one_swaps_every_word_that_has_options_and_no_other() -> None:
    words = sample_variant(WORDS, OPTIONS, **{**DRAW, "probability": 1.0}).split(" ")
    assert len(words) == len(WORDS)
    for word, original, options in zip(words, WORDS, OPTIONS, strict=True):
        assert word in options if options else word == original


@pytest.mark.parametrize("change", [{"seed": 9}, {"example": 9}, {"epoch": 9}, {"field": "pair"}])
def test_each_part_of_the_name_changes_the_draw(change: dict) -> None:
    words, options = ["w"] * 60, [["a", "b", "c"]] * 60
    one, same = sample_variant(words, options, **DRAW), sample_variant(words, options, **DRAW)
    assert one == same != sample_variant(words, options, **{**DRAW, **change})


def test_the_share_of_swapped_words_is_the_probability() -> None:
    text = sample_variant(["w"] * 4000, [["x"]] * 4000, **{**DRAW, "probability": 0.4})
    assert 0.37 < text.count("x") / 4000 < 0.43


def test_the_draw_is_the_same_in_every_process() -> None:
    code = (
        f"from tasks.methods.text.word_substitution import *; print(sample_variant({WORDS!r}, {OPTIONS!r}, **{DRAW!r}))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert texts == {sample_variant(WORDS, OPTIONS, **DRAW)}


def test_illegal_arguments_are_refused() -> None:
    with pytest.raises(RecipeError, match="between 0 and 1"):
        sample_variant(WORDS, OPTIONS, **{**DRAW, "probability": 1.5})
    with pytest.raises(DataError, match="one list per word"):
        sample_variant(WORDS, OPTIONS[:2], **DRAW)


def test_candidates_are_whole_new_words() -> None:
    tokens = ["Film", "##s", "[UNK]", "<s>", "movie", "Movie", "3d", ".", "", "story", "café", "plot"]
    assert keep_candidates(tokens, "film", 3) == ["movie", "story", "café"]
    assert keep_candidates(tokens, "film", 0) == []


@pytest.mark.parametrize(
    ("candidate", "original", "expected"),
    [
        ("movie", "film", "movie"),
        ("movie", "Film", "Movie"),
        ("movie", "FILM", "MOVIE"),
        ("you", "I", "You"),
        ("Paris", "town", "Paris"),
        ("", "Film", ""),
    ],
)
def test_case_follows_the_original(candidate: str, original: str, expected: str) -> None:
    assert match_case(candidate, original) == expected
