"""Rows of documents: counts, hostile tables, no document on both sides, and what a table is guessed to be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from flows.recipes.starter import starter_recipe
from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.row_files import read_split
from tasks.ports.rows.table_files import write_table
from tasks.recipe.slices import RowsSlice
from tasks.task_types.interfaces import JudgingLabels, TableRows
from tasks.task_types.next_words.rows import READER
from tests.task_types.next_words.tables import documents

SPEC = TaskSpec(name="words", kind="next-words")


def given(*texts: Any, label: str = "label") -> TableRows:
    return TableRows("rows.csv", {"text": "body", "label": label}, {"text": texts, "label": [None] * len(texts)})


def knobs(path: Path, spec: TaskSpec = SPEC, **more: Any) -> RowsSlice:
    values = {"source": str(path), "selection_rows": 0, "validation_share": 0.2, "holdout_rows": 0}
    return RowsSlice.model_validate({"task": spec.model_dump()} | values | more)


def test_a_document_is_counted_in_words_line_ends_and_bytes() -> None:
    """Two words, of which one is in both, and two lines: e, a, two ends; a and one end."""
    one, other = READER.labels(given("é a\n", "a"), None)
    shares = {"é": 1 / 5, "a": 2 / 5, "\n": 2 / 5}
    nats = -math.log(shares["é"]) - math.log(shares["a"]) - math.log(shares["\n"])
    assert one == f"3 5 {nats:.4f}"
    assert other == f"2 1 {-2 * math.log(2 / 5):.4f}"
    assert READER.labels(given("a b\nc", None, " "), None)[1:] == [None, None]


@pytest.mark.parametrize(
    ("columns", "spec", "sentence"),
    [
        ({"body": ["a b"] * 9}, {}, "has no text column 'text'; it has body"),
        ({"text": [*documents(9), None]}, {}, "row 10: the text in column 'text' is empty"),
        ({"text": list(range(9))}, {}, "row 1: the text in column 'text' is no text but a number"),
        ({"text": [[{"role": "user", "content": "hi"}]] * 9}, {}, "row 1: the text in column 'text' is a chat"),
        ({"text": [["a", "b"]] * 9}, {}, "is no text but a number or a list"),
        ({"text": [*documents(9), "a\x00b"]}, {}, "row 10: the text in column 'text' contains the character NUL"),
        ({"text": documents(9), "mood": [1] * 9}, {"label": "mood"}, "task.label names 'mood', and a language model"),
        ({"text": documents(1)}, {}, "hold out fewer"),
        ({"text": documents(1) * 9}, {}, "hold out fewer|overlap"),
        ({"text": []}, {}, "cannot be read"),
    ],
)
def test_hostile_tables_have_a_sentence_each(
    columns: dict[str, list[Any]], spec: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    write_table(tmp_path / "train.parquet", columns)
    task = TaskSpec.model_validate({"name": "words", "kind": "next-words", **spec})
    with pytest.raises(DataError, match=sentence):
        prepare_rows(tmp_path / "train.parquet", knobs(tmp_path / "train.parquet", task), tmp_path / "rows")


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(DataError, match="half of a surrogate pair at character 2"):
        READER.labels(given("ab\ud800"), None)


def test_judging_sets_of_documents_have_no_classes() -> None:
    with pytest.raises(DataError, match="documents have no classes"):
        READER.judging_labels(given("a b"), JudgingLabels("data.judge.other", classes={"a": ["b"]}), None)


def test_no_document_is_on_both_sides(tmp_path: Path) -> None:
    """Parts of documents are rows of one group; a document that repeats a held-out one is removed."""
    whole = documents(60)
    parts = [(number, line) for number, text in enumerate(whole) for line in text.split("\n")]
    names = [f"page {number}" for number, _ in parts]
    write_table(tmp_path / "train.parquet", {"text": [line for _, line in parts], "page": names})
    prepare_rows(tmp_path / "train.parquet", knobs(tmp_path / "train.parquet", group="page"), tmp_path / "rows")
    page_of = {line: number for number, line in parts}
    sides = [{page_of[text] for text in read_split(tmp_path / "rows", one).texts} for one in ("train", "validation")]
    assert all(sides) and not sides[0] & sides[1]


def test_a_table_of_texts_alone_is_guessed(tmp_path: Path) -> None:
    write_table(tmp_path / "pages.parquet", {"title": [f"page {n}" for n in range(60)], "text": documents(60)})
    starter = starter_recipe(str(tmp_path / "pages.parquet"), tmp_path / "out.yaml")
    assert "kind: next-words" in starter.text and "headline: word_perplexity" in starter.text
    assert "{metric: retained, at_least: 0.83}" in starter.text
    assert any("no column is a label" in note for note in starter.notes)
    write_table(tmp_path / "rated.parquet", {"text": documents(60), "label": ["good", "bad"] * 30})
    assert "kind: classification" in starter_recipe(str(tmp_path / "rated.parquet"), tmp_path / "out.yaml").text
