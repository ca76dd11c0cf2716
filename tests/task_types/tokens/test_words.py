"""Words among the tokens of a text: first pieces, windows, and places in a text as its user wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.scoring.windows import outputs_of_units, read_by_transformers
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.heads import HEADS
from tasks.task_types.texts.cells import text_in_cell
from tasks.task_types.tokens.sentence import SENTENCE, as_words, first_pieces, word_spans
from tasks.training.data.encoded import collate, encode_windows
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.models.students import load_classifier
from tasks.training.selection import all_outputs

NAMES = ["O", "B-X", "I-X"]
TEXTS = ["the filmy song was not bad", "it", "the film was good and the plot was poor " * 6 + "end"]
CPU = torch.device("cpu")


def places(*spans: tuple[int, int]) -> np.ndarray:
    return np.asarray(spans, dtype=np.int64)


def test_the_first_piece_of_a_word_answers_it_also_where_its_space_belongs_to_it() -> None:
    bert = places((0, 0), (0, 2), (2, 4), (5, 8), (0, 0))
    space_first = places((0, 2), (2, 4), (4, 8))
    space_alone = places((0, 4), (4, 5), (5, 8))
    assert first_pieces("abcd efg", [bert])[0].tolist() == [-1, 0, -1, 1, -1]
    assert first_pieces("abcd efg", [space_first])[0].tolist() == [0, -1, 1]
    assert first_pieces("abcd efg", [space_alone])[0].tolist() == [0, -1, 1]


def test_a_word_is_answered_in_the_window_where_it_stands_farthest_from_an_edge() -> None:
    first = places((0, 0), (0, 1), (2, 3), (4, 5), (0, 0))
    second = places((0, 0), (2, 3), (4, 5), (6, 7), (0, 0))
    assert [found.tolist() for found in first_pieces("a b c d", [first, second])] == [
        [-1, 0, 1, -1, -1],
        [-1, -1, 2, 3, -1],
    ]


def test_a_window_that_begins_inside_of_a_word_does_not_answer_it() -> None:
    first, second = places((0, 1), (2, 3)), places((3, 4), (5, 6))
    assert [found.tolist() for found in first_pieces("a bc d", [first, second])] == [[0, 1], [-1, 2]]


def test_a_word_without_a_token_is_answered_by_none() -> None:
    assert first_pieces("a \u200b b", [places((0, 1), (4, 5))])[0].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", ["Hello", ",", "world", "!"]),
        ("  in\tSt. Gallen\n(CH)", ["in", "St", ".", "Gallen", "(", "CH", ")"]),
        ("@user #topic don't", ["@user", "#topic", "don't"]),
        ("...", [".", ".", "."]),
        ("", []),
    ],
)
def test_words_of_a_written_text_have_their_places(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in word_spans(text)] == words
    assert as_words(text) == " ".join(words)


def test_words_of_a_table_are_those_of_its_lists() -> None:
    """``'s`` is one word of a tweet whose words a table divides, as the model was judged."""
    words = ["Putin", "'s", "visit", "...", "a\u00a0b"]
    text = text_in_cell(words)
    assert as_words(text) == text and [text[start:end] for start, end in word_spans(text)] == words
    assert len(word_spans(str(text[:]))) > len(words)


@pytest.fixture(scope="module")
def model(tiny_bert: Path) -> Any:
    return load_classifier(tiny_bert, Task("tiny", "tokens", NAMES, "", False, HEADS["tokens"]), CPU).eval()  # type: ignore[arg-type]


def test_training_and_scoring_read_the_same_outputs_also_in_windows(tiny_bert: Path, model: Any) -> None:
    tokenizer = load_tokenizer(tiny_bert)
    encoded = encode_windows(tokenizer, TEXTS, 16, SENTENCE)
    assert len(encoded.lengths_N) > len(TEXTS) and encoded.lengths_N.max() <= 16
    learned = all_outputs(model, HEADS["tokens"].outputs, encoded, tokenizer.pad_token_id, precision="fp32")["logits"]
    scored = outputs_of_units(
        SENTENCE,
        TEXTS,
        ["logits"],
        read=lambda some, seconds: read_by_transformers(tokenizer, some, 16, SENTENCE, seconds),
        ask=lambda inputs: {"logits": model(**inputs).logits.detach().numpy()},
        together=1,
    )["logits"]
    for ours, theirs, text in zip(learned, scored, TEXTS, strict=True):
        assert ours.shape == (len(text.split()), len(NAMES)) and np.abs(ours).sum(-1).all()
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_loss_reads_one_token_for_each_word(tiny_bert: Path, model: Any) -> None:
    tokenizer = load_tokenizer(tiny_bert)
    encoded = encode_windows(tokenizer, TEXTS[:2], 16, SENTENCE)
    batch = collate(encoded, [1, 0], tokenizer.pad_token_id, CPU)
    assert batch.numbers.tolist() == [6, 0, 1, 2, 3, 4, 5]  # the words of both rows, numbered together
    whole = model(**batch.inputs(model)).logits
    found = batch.answers({"logits": whole})["logits"]
    assert found.shape == (7, len(NAMES))
    torch.testing.assert_close(found[0], whole[0, 1])  # after the special token
    torch.testing.assert_close(found[1], whole[1, 1])


def test_entities_have_the_places_of_the_text_as_it_is_written() -> None:
    text = "I like  New York, really."
    logits_UC = np.full((7, 3), -5.0, dtype=np.float32)
    tags = [0, 0, 1, 2, 0, 0, 0]
    logits_UC[np.arange(7), tags] = 5
    spans = GRAPHS["tokens"].spans
    assert spans is not None
    answers = np.empty(1, dtype=object)
    answers[0] = logits_UC
    (found,) = spans({"logits": answers}, {"labels": NAMES}, [text])
    (entity,) = found["entities"]
    assert entity["score"] > 0.99 and entity["type"] == "X"
    assert (entity["start"], entity["end"], entity["text"]) == (8, 16, "New York")
    assert text[entity["start"] : entity["end"]] == entity["text"]
