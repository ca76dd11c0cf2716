"""Rows of the user's own: what is read, how it is divided, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.catalog import GLUE, TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.tables import read_table, read_texts
from tasks.recipe.slices import RowsSlice

SHARED = Path(os.environ.get("LIMBECK_SHARED", Path(__file__).resolve().parents[3].parent / "shared"))
SPEC = TaskSpec(name="mine")


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows))
    return path


def many(count: int = 100) -> list[tuple[str, str]]:
    return [(f"text number {number}", "yes" if number % 3 else "no") for number in range(count)]


def test_string_labels_without_a_validation_split(tmp_path: Path) -> None:
    facts = prepare_rows(write(tmp_path / "a.csv", many()), RowsSlice(task=SPEC, selection_rows=10), tmp_path / "out")
    assert facts.labels == ("no", "yes") and facts.rows == {"train": 80, "validation": 10, "selection": 10}


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for out in ("one", "two"):
        prepare_rows(write(tmp_path / f"{out}.csv", many()), RowsSlice(task=SPEC, selection_rows=10), tmp_path / out)
    assert all(
        path.read_bytes() == (tmp_path / "two" / path.name).read_bytes() for path in (tmp_path / "one").iterdir()
    )


def test_equal_texts_are_never_on_both_sides(tmp_path: Path) -> None:
    prepare_rows(write(tmp_path / "a.csv", many(50) * 4), RowsSlice(task=SPEC, selection_rows=20), tmp_path / "out")
    texts = {
        split: set(pq.read_table(tmp_path / "out" / f"{split}.parquet").column("text").to_pylist())
        for split in ("train", "selection", "validation")
    }
    assert not texts["train"] & texts["selection"] and not texts["train"] & texts["validation"]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([*many(), (" ", "yes")], "row 101: the text in column 'text' is empty"),
        ([(text, "yes") for text, _ in many()], "has 1 different labels"),
        (
            [*[(text, "yes") for text, _ in many()], ("alone", "no")],
            r"too few different rows of class 'no' \(1 row\)",
        ),
    ],
)
def test_bad_rows_are_one_sentence(tmp_path: Path, rows: list[tuple[str, str]], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        prepare_rows(write(tmp_path / "a.csv", rows), RowsSlice(task=SPEC, selection_rows=10), tmp_path / "out")


def test_a_missing_column_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no text column 'txet'.*did you mean 'text'"):
        prepare_rows(
            write(tmp_path / "a.csv", many()), RowsSlice(task=TaskSpec(name="mine", text="txet")), tmp_path / "out"
        )


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("task", "pairs"), [("sst2", False), ("mrpc", True), ("stsb", True), ("cola", False), ("rte", True)]
)
def test_real_glue(tmp_path: Path, task: str, pairs: bool) -> None:
    source = SHARED / "data" / "glue" / task
    if not source.is_dir():
        pytest.skip(f"real data not found: {source}")
    facts = prepare_rows(source, RowsSlice(task=GLUE[task], selection_rows=100), tmp_path / "out")
    first = pq.read_table(tmp_path / "out" / "validation.parquet").slice(0, 1).to_pylist()[0]
    assert facts.rows["selection"] >= 100 and (first["pair"] is not None) == pairs


def test_texts_in_objects_are_columns(tmp_path: Path) -> None:
    """As data sets of translations have them; objects of other values, and columns of such names, stay as they are."""
    rows = [{"translation": {"de": f"Satz {n}", "en": f"sentence {n}"}, "flags": {"a": n % 2}} for n in range(1200)]
    rows[1100]["translation"] = {"de": "nur", "en": None}  # type: ignore[dict-item]
    rows[1150]["translation"] = None  # type: ignore[assignment]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        table, opened = read_table(tmp_path / name)
        assert opened.columns == ("translation", "flags", "translation.de", "translation.en")
        assert table.column("translation.de").to_pylist()[1098:1101] == ["Satz 1098", "Satz 1099", "nur"]
        assert [table.column("translation.en")[row].as_py() for row in (7, 1100, 1150)] == ["sentence 7", None, None]
        (first, *_), pairs = read_texts(tmp_path / name, "translation.en", "{translation.de}!")
        assert first == "sentence 0" and pairs is not None and pairs[0] == "Satz 0!"
    spec = TaskSpec(name="mine", kind="seq2seq", text="translation.de", label="translation.fr", metrics=("bleu",))
    with pytest.raises(DataError, match="no label column 'translation.fr'; it has .*translation.de, translation.en"):
        prepare_rows(tmp_path / "a.jsonl", RowsSlice(task=spec), tmp_path / "out")


def test_graded_texts_in_objects_are_columns_of_lists(tmp_path: Path) -> None:
    """Answers with their places, words with their types, and turns of chats stay as they are."""
    rows: list[dict[str, Any]] = [
        {"found": [{"text": "a", "score": 2}, {"text": "b", "score": 0}], "passages": {"text": ["x"], "selected": [1]}},
        {"found": [], "passages": {"text": [], "selected": []}},
        {"found": None, "passages": None},
        {"found": [{"text": "c", "score": None}, None], "passages": {"text": None, "selected": [0]}},
    ]
    others = {
        "answers": {"text": ["x"], "answer_start": [0]},
        "spans": [{"text": "x", "start": 0, "label": "PER"}],
        "messages": [{"role": "user", "content": "x"}],
    }
    pq.write_table(pa.Table.from_pylist([row | others for row in rows]), tmp_path / "a.parquet")
    table, opened = read_table(tmp_path / "a.parquet")
    assert set(opened.columns) - {*rows[0], *others} == {
        "found.text",
        "found.score",
        "passages.text",
        "passages.selected",
    }
    assert table.column("found.text").to_pylist() == [["a", "b"], [], None, ["c", None]]
    assert table.column("found.score").to_pylist() == [[2, 0], [], None, [None, None]]
    assert table.column("passages.text").to_pylist() == [["x"], [], None, None]
    assert table.column("passages.selected").to_pylist() == [[1], [], None, [0]]


def test_shards_are_one_split_in_order(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for number in range(3):
        shard = [(f"text {number} {row}", "yes" if row % 2 else "no") for row in range(40)]
        write(tmp_path / "rows" / f"train-{number:05d}-of-00003.csv", shard)
    facts = prepare_rows(tmp_path / "rows", RowsSlice(task=SPEC, selection_rows=10), tmp_path / "out")
    assert sum(facts.rows.values()) == 120


def test_two_train_files_that_are_no_shards_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for name in ("train.csv", "train_old.csv"):
        write(tmp_path / "rows" / name, many())
    with pytest.raises(DataError, match=r"train\.csv, train_old\.csv; keep one"):
        prepare_rows(tmp_path / "rows", RowsSlice(task=SPEC), tmp_path / "out")
