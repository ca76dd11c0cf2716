"""Pieces of chats are counted, and chats are timed, as the template of the tokenizer writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.ports.rows.row_files import read_split
from tasks.recipe.makers.slices import VocabularySlice
from tasks.scoring.speed.texts import fertility, row_inputs
from tasks.task_types.chats.turns import LEARNED_ANSWERS
from tasks.task_types.texts.as_read import texts_as_read
from tasks.task_types.types import TASK_TYPES
from tasks.training.data.rows import load_tokenizer
from tasks.training.shrinking import vocabulary
from tests.task_types.chats.tables import CHATML
from tests.task_types.next_words.tables import byte_tokenizer, documents
from tests.task_types.test_makers import LENGTH, Prepared

OWN_WORDS = "zebra zebra "


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """Chats, and a model whose template begins with words that no chat has."""
    given = Prepared(tmp_path, "chats")
    tokenizer = byte_tokenizer([*documents(40), *[OWN_WORDS] * 200])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>"]})
    tokenizer.chat_template = OWN_WORDS + CHATML
    tokenizer.save_pretrained(given.teacher)
    return given


def test_the_words_of_a_template_stay_and_are_compared(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Sequence[str]] = []
    share = vocabulary.share_cut_alike

    def seen(texts: Sequence[str], *others: Any) -> float | None:
        compared.append(texts)
        return share(texts, *others)

    monkeypatch.setattr(vocabulary, "share_cut_alike", seen)
    knobs = VocabularySlice(task_type="chats", keep="used", max_length=LENGTH)
    folder, facts = prepared.made("vocabulary", knobs, base=prepared.teacher)
    kept = load_tokenizer(folder).get_vocab()
    assert "zebra" in kept and "Ġzebra" in kept
    assert facts["cut_alike"] == 1.0 and len(compared[0]) > 10
    assert all(text.startswith(OWN_WORDS + "<|start|>") for text in compared[0])


def test_chats_are_counted_and_timed_as_they_are_read(prepared: Prepared) -> None:
    rows, tokenizer = read_split(prepared.rows, "validation"), load_tokenizer(prepared.teacher)
    read = texts_as_read(LEARNED_ANSWERS, rows.texts, tokenizer)
    assert all(text.startswith(OWN_WORDS) for text in read)
    tokens = tokenizer(read, add_special_tokens=False)["input_ids"]
    words = sum(len(text.split()) for text in read)
    assert fertility(prepared.teacher, [rows], "chats") == sum(map(len, tokens)) / words
    assert row_inputs(tokenizer, rows, 3, 10_000, "chats")["input_ids"].tolist() == [tokens[3]]


def test_texts_of_other_types_stay_as_they_are() -> None:
    from tasks.task_types.graphs import GRAPHS

    for name in set(TASK_TYPES) - {"chats"}:
        assert texts_as_read(GRAPHS[name].units, ["a", "b"], None) == ["a", "b"], name
