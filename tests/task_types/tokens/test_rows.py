"""Tagged words in tables: schemes of tags, repairs that are counted, and hostile rows that get a sentence each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.recipes.starter import starter_recipe
from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.prepared import prepare_rows, prepare_transfer
from tasks.ports.rows.row_files import StoredRows, read_facts, read_split
from tasks.ports.rows.table_files import write_table
from tasks.recipe.slices import RowsSlice, TransferSlice
from tasks.results.facts import RowsFacts
from tests.task_types.tokens.tables import tagged, write_tagged


def prepared(folder: Path, columns: dict[str, list[Any]], **task: Any) -> tuple[StoredRows, RowsFacts, list[str]]:
    """Prepare rows of which none is held back but one; return train, facts and the names of the tags."""
    write_table(folder / "train.parquet", columns)
    write_table(folder / "validation.parquet", {name: values[-1:] for name, values in columns.items()})
    knobs = RowsSlice(task=TaskSpec(name="works", kind="tokens", **task), selection_rows=0, purge=False)
    facts = prepare_rows(folder, knobs, folder / "rows")
    return read_split(folder / "rows", "train"), facts, read_facts(folder / "rows").labels or []


ENTITY = {"tokens": [["a", "b", "c", "d"]], "tags": [["O", "B-X", "I-X", "O"]]}


@pytest.mark.parametrize(
    ("tags", "stored", "note"),
    [
        (["B-X", "I-X", "B-X", "O"], "1 2 1 0", ""),
        (["I-X", "I-X", "B-X", "O"], "1 2 1 0", "1 I- tags"),  # IOB1
        (["B-X", "L-X", "U-X", "O"], "1 2 1 0", "BILOU"),
        (["B-X", "E-X", "S-X", "O"], "1 2 1 0", "BIOES"),
        (["O", "I-X", "O", "I-X"], "0 1 0 1", "2 I- tags"),
        (["B-X", "I-Y", "I-Y", "O"], "1 3 4 0", "1 I- tags"),
        ("B-X I-X B-X O", "1 2 1 0", ""),
    ],
)
def test_every_scheme_is_stored_in_bio_and_changes_are_counted(
    tmp_path: Path, tags: Any, stored: str, note: str
) -> None:
    rows, facts, names = prepared(tmp_path, {"tokens": [["a", "b", "c", "d"]] * 2, "tags": [tags, tags]})
    assert rows.labels[0] == stored and rows.texts[0] == "a b c d"
    assert names[:3] == ["O", "B-X", "I-X"]
    assert any(note in line for line in facts.read) if note else not any("I- tags" in line for line in facts.read)


def test_a_space_within_a_word_does_not_divide_it(tmp_path: Path) -> None:
    rows, _, _ = prepared(tmp_path, {"tokens": [["1 1/2", "film"]] * 2, "tags": [["O", "B-X"]] * 2})
    assert rows.texts[0].split(" ") == ["1\u00a01/2", "film"]


def test_an_empty_word_keeps_its_place_and_is_counted(tmp_path: Path) -> None:
    rows, facts, _ = prepared(tmp_path, {"tokens": [["a", "", "film"]] * 2, "tags": [["O", "O", "B-X"]] * 2})
    assert len(rows.texts[0].split(" ")) == 3 and rows.labels[0] == "0 0 1"
    assert any("2 words are empty" in line for line in facts.read)


def test_words_of_unlabelled_texts_are_divided_as_predictions_are(tmp_path: Path) -> None:
    prepared(tmp_path, ENTITY)
    (tmp_path / "mine.txt").write_text("Rome,  (see p. 3)\n")
    write_table(tmp_path / "mine.parquet", {"tokens": [["Rome,", "1 1/2"]]})
    for source, words in (("mine.txt", ["Rome", ",", "(", "see", "p", ".", "3", ")"]), ("mine.parquet", None)):
        output = tmp_path / f"of {source}"
        knobs = TransferSlice(source="", task_type="tokens", text="tokens" if words is None else "text")
        prepare_transfer(tmp_path / source, knobs, output, tmp_path / "rows")
        assert read_split(output, "train").texts[0].split(" ") == (words or ["Rome,", "1\u00a01/2"])


def test_rows_without_tags_are_unlabelled(tmp_path: Path) -> None:
    columns = {"tokens": [["a"], ["b"], ["c"]], "tags": [None, ["B-X"], ["B-X"]]}
    rows, facts, _ = prepared(tmp_path, columns)
    assert rows.texts == ["b", "c"] and facts.unlabelled["train"] == 1


@pytest.mark.parametrize(
    ("tokens", "tags", "sentence"),
    [
        (["a", "b"], ["O"], "row 1: 2 words in column 'tokens' have 1 tags in column 'tags'"),
        (["a"], ["NOUN"], "the tag 'NOUN' in column 'tags' is neither O nor a letter and a type"),
        (["a"], ["B-"], "the tag 'B-' in column 'tags' is neither O"),
        (["a"], ["X-PER"], "the tag 'X-PER' in column 'tags' is neither O"),
        (["a", None], ["O", "O"], "row 1: word 2 in column 'tokens' is None"),
        ([], [], "row 1: the text in column 'tokens' is empty"),
        (None, ["O"], "row 1: the text in column 'tokens' is empty"),
    ],
)
def test_a_hostile_row_gets_a_sentence(tmp_path: Path, tokens: Any, tags: Any, sentence: str) -> None:
    with pytest.raises(DataError) as told:
        prepared(tmp_path, {"tokens": [tokens, *ENTITY["tokens"]], "tags": [tags, *ENTITY["tags"]]})
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("columns", "task", "sentence"),
    [
        ({"tokens": [5, 5], "tags": [["O"], ["O"]]}, {}, "has 0 types of entities"),
        ({"tokens": [["a"]] * 2, "tags": [["O"]] * 2}, {}, "has 0 types of entities in column 'tags'"),
        ({"tokens": [["a"]] * 2, "tags": [[1]] * 2}, {}, "the tags in column 'tags' are numbers"),
        (
            {"tokens": [["a"]] * 2, "tags": [[7]] * 2},
            {"labels": ["O", "B-X", "I-X"]},
            "the tag 7 is none of 0 to 2, which mean O, B-X, I-X",
        ),
        ({**ENTITY}, {"labels": ["B-X", "O"]}, "a model of entities has O first"),
        ({**ENTITY}, {"labels": ["O", "B-Y", "I-Y"]}, "the type of the tag 'B-X' is not one of Y"),
        ({"words": [["a"]], "tags": [["O"]]}, {}, "has no text column 'tokens'; it has words, tags"),
        (
            {"tokens": [["a"], ["b"]], "tags": [["B-X"], ["O"]]},
            {},
            "the validation split has no entity",
        ),
    ],
)
def test_a_hostile_table_gets_a_sentence(
    tmp_path: Path, columns: dict[str, list[Any]], task: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DataError) as told:
        prepared(tmp_path, columns, **task)
    assert sentence in str(told.value)


def test_init_recognises_words_with_tags_and_says_why(tmp_path: Path) -> None:
    starter = starter_recipe(str(write_tagged(tmp_path)), tmp_path / "mine.yaml")
    assert "kind: tokens" in starter.text and "label: tags" in starter.text
    assert any(
        "tags has lists" in note or "a tag for each of them: tags of the types ART, FOOD" in note
        for note in starter.notes
    )


def test_json_lines_are_read_as_parquet(tmp_path: Path) -> None:
    columns = tagged(40)
    lines = [json.dumps({"tokens": words, "tags": tags}) for words, tags in zip(*columns.values(), strict=True)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    knobs = RowsSlice(task=TaskSpec(name="works", kind="tokens"), selection_rows=0, purge=False)
    prepare_rows(tmp_path / "train.jsonl", knobs, tmp_path / "rows")
    assert read_facts(tmp_path / "rows").labels == ["O", "B-ART", "I-ART", "B-FOOD", "I-FOOD"]
