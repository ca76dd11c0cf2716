"""Entities that are marked by places become tags of words, or one sentence says why not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tasks.errors import DataError
from tasks.task_types.tokens.marked_texts import with_tagged_words

TEXT = "Dr. Anna Mann, of New York-based Acme."


def tagged(cell: Any, text: str = TEXT) -> tuple[dict[str, str], list[str]]:
    """Return the tags of a text by word, without those that are O, and what is said."""
    table, told = with_tagged_words(pa.table({"text": [text], "entities": [cell]}), "mine.jsonl")
    (words,), (tags,) = (table.column(name).to_pylist() for name in ("tokens", "tags"))
    return {word: tag for word, tag in zip(words, tags, strict=True) if tag != "O"}, told


def marked(*marks: tuple[int, int, str]) -> list[dict[str, Any]]:
    return [{"start": start, "end": end, "label": label} for start, end, label in marks]


def test_words_within_an_entity_have_its_tags() -> None:
    found, told = tagged(marked((33, 37, "ORG"), (4, 13, "PER")))
    assert found == {"Anna": "B-PER", "Mann": "I-PER", "Acme": "B-ORG"}
    assert told == ["entities of entities as tags of words"]


def test_entities_side_by_side_are_two() -> None:
    found, _ = tagged(marked((4, 8, "PER"), (9, 13, "PER")))
    assert found == {"Anna": "B-PER", "Mann": "B-PER"}


def test_spaces_and_copies_of_an_entity_change_nothing() -> None:
    assert tagged(marked((3, 14, "PER"), (3, 14, "PER")))[0] == {"Anna": "B-PER", "Mann": "I-PER", ",": "I-PER"}
    assert tagged(marked((4, 9, "PER")))[1] == tagged(marked((4, 8, "PER")))[1]


def test_an_entity_that_ends_inside_of_a_word_marks_it_whole_and_is_counted() -> None:
    found, told = tagged(marked((18, 26, "LOC")))
    assert found == {"New": "B-LOC", "York-based": "I-LOC"}
    assert told[1] == "1 entities begin or end inside of a word, and mark the whole word"


@pytest.mark.parametrize(
    ("marks", "sentence"),
    [
        ([(4, 13, "PER"), (9, 13, "PER")], r"row 1: the entities \[4, 13, 'PER'\] and \[9, 13, 'PER'\] overlap"),
        ([(30, 39, "ORG")], r"row 1: the entity \[30, 39, 'ORG'\] is not in its text, which has 38 characters"),
        ([(-4, 3, "ORG")], "is not in its text"),
        ([(5, 5, "ORG")], "is not in its text"),
        ([(3, 4, "ORG")], "has no word of its own, ' '"),
        ([(22, 26, "LOC"), (27, 32, "X")], "has no word of its own, 'based'"),
    ],
)
def test_a_wrong_entity_is_one_sentence(marks: list[tuple[int, int, str]], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as refused:
        tagged(marked(*marks))
    assert "\n" not in str(refused.value)


def test_a_cell_of_another_form_is_one_sentence() -> None:
    cells = ['[[0, 3, "X"]]'] * 20 + ['[["Anna", "PER"]]']
    with pytest.raises(
        DataError, match=r"row 21: '\[\[\"Anna\", \"PER\"\]\]' in column 'label' is no list of entities"
    ):
        with_tagged_words(pa.table({"text": [TEXT] * 21, "label": cells}), "mine.csv")


@pytest.mark.parametrize(
    "columns",
    [
        {"text": ["good", "bad"], "label": ["positive", "negative"]},
        {"text": ["good", "bad"], "labels": [["a", "b"], []]},
        {"text": ["good", "bad"], "label": [1, 0]},
        {"text": ["good", "bad"], "labels": [[1, 0, 1], [0, 0, 1]]},
        {"text": ["good", "bad"], "entities": [[], []]},
        {"tokens": [["good"]], "tags": [["O"]], "text": ["good"], "entities": ['[[0, 4, "X"]]']},
    ],
)
def test_other_tables_stay_as_they_are(columns: dict[str, list[Any]]) -> None:
    table = pa.table(columns)
    assert with_tagged_words(table, "mine.csv") == (table, [])


def test_a_row_without_entities_is_unlabelled_and_an_empty_list_is_not() -> None:
    table = pa.table({"text": [TEXT] * 3, "spans": [marked((0, 2, "X")), [], None]})
    found = with_tagged_words(table, "mine.parquet")[0].column("tags").to_pylist()
    assert found[1] and set(found[1]) == {"O"} and found[2] is None
