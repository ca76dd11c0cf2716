"""Tables of sources and targets: what is read, and ten hostile rows with a sentence each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.metrics.of_texts import BETWEEN_REFERENCES
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.row_files import read_split
from tasks.ports.rows.table_files import write_table
from tasks.recipe.slices import RowsSlice
from tasks.task_types.interfaces import TableRows
from tasks.task_types.readers import READERS
from tasks.task_types.seq2seq.rows import columns_of_texts, guess_texts
from tests.task_types.seq2seq.tables import sentences, write_sentences

SPEC = TaskSpec(name="texts", kind="seq2seq")


def rows_of(sources: list[Any], targets: list[Any]) -> TableRows:
    return TableRows("train.csv", {"text": "source", "label": "target"}, {"text": sources, "label": targets})


def test_several_right_texts_are_lists_or_columns() -> None:
    read = READERS["seq2seq"].labels
    both = BETWEEN_REFERENCES.join(["one", "two"])
    cells = ["one", ["one", "two"], {"first": "one", "second": "two"}, ["one", None, " "], None, "", []]
    assert read(rows_of(["a"] * 7, cells), None) == ["one", both, both, "one", None, None, None]


@pytest.mark.parametrize(
    ("source", "target", "sentence"),
    [
        ("a", 3, "row 1: the target in column 'target' is 3; give the text to write"),
        ("a", ["b", 4], "has 4 among its right texts"),
        ("a", [["b"]], "among its right texts; each of them is a text"),
        ("a", "b\x00", "the target in column 'target' contains the character NUL"),
        ("a\x00", "b", "the source in column 'source' contains the character NUL"),
        ("a", f"b{BETWEEN_REFERENCES}c", r"contains the character RS \(between records\)"),
        ("a", "b\ud800", "half of a surrogate pair at character 1; write the text as UTF-8 again"),
        ("\udfffa", "b", "half of a surrogate pair at character 0"),
        ("a", True, "is True; give the text to write"),
        ("a", ["b", {"c": 1}], "among its right texts"),
    ],
)
def test_hostile_rows_have_a_sentence(source: Any, target: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        READERS["seq2seq"].labels(rows_of([source], [target]), None)


def test_a_table_without_targets_is_refused() -> None:
    with pytest.raises(DataError, match="no text to write in column 'target'"):
        READERS["seq2seq"].class_names(rows_of(["a", "b"], [None, ""]))


def test_sources_that_judge_are_not_learned_from(tmp_path: Path) -> None:
    """The same source with another target is a leak: by text, the training row goes."""
    sources, targets = sentences(60)
    write_table(tmp_path / "table" / "train.parquet", {"source": sources * 2, "target": targets + targets[::-1]})
    facts = prepare_rows(tmp_path / "table", RowsSlice(task=SPEC, selection_rows=4), tmp_path / "rows")
    held = {text for split in ("validation", "selection") for text in read_split(tmp_path / "rows", split).texts}
    assert held and held.isdisjoint(read_split(tmp_path / "rows", "train").texts)
    assert facts.rows["train"] <= 120 - 2 * len(held) and set(facts.leaked.values()) == {0}


def test_init_recognises_translations_and_summaries(tmp_path: Path) -> None:
    sources, targets = sentences(30)
    table = {"source": sources, "target": targets}
    chosen = columns_of_texts(table)
    assert chosen is not None and (chosen.text, chosen.label) == ("source", "target")
    found = guess_texts(table, chosen)
    assert found is not None and found.metrics[0] == "bleu" and "translations" in found.reason
    long = {"document": [" ".join([text] * 9) for text in sources], "summary": [[one, one] for one in targets]}
    chosen = columns_of_texts(long)
    assert chosen is not None and chosen.label == "summary"
    found = guess_texts(long, chosen)
    assert found is not None and found.metrics[0] == "rouge_l" and "summaries" in found.reason
    assert columns_of_texts({"text": sources, "label": ["a"] * 30}) is None
    assert write_sentences(tmp_path).is_file()
