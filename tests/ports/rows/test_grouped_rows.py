"""Rows that are judged together share a split, and tasks without them are written as before there were any."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.judging_sets import prepare_judging_set
from tasks.ports.rows.overlap import folded
from tasks.ports.rows.prepared import divided_rows, prepare_rows
from tasks.ports.rows.row_files import read_facts, read_split
from tasks.ports.rows.splits import Split, divided_by_text
from tasks.recipe.slices import JudgingRowsSlice, RowsSlice

ANSWERS = TaskSpec(
    name="answers", text="passage", pair="{question} {answer}", group="unit", truncate="first", metrics=("group_exact",)
)


def write_answers(folder: Path, **changes: Any) -> Path:
    """Write two answers to each of 60 questions, three questions a passage."""
    rows = [
        {
            "passage": f"passage number {number // 6}",
            "question": f"question {number // 2}",
            "answer": f"answer {number}",
            "unit": number // 2,
            "book": f"book {number // 6}",
            "label": ("no", "yes")[number % 2],
        }
        for number in range(120)
    ]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    for name, (row, value) in changes.items():
        table[name][row] = value
    pq.write_table(pa.table(table), folder / "answers.parquet")
    return folder / "answers.parquet"


def test_the_answers_to_a_question_share_a_split(tmp_path: Path) -> None:
    knobs = RowsSlice(task=ANSWERS, selection_rows=10, holdout_rows=20)
    prepare_rows(write_answers(tmp_path), knobs, tmp_path / "out")
    seen: dict[str, str] = {}
    for split in ("train", "selection", "validation", "holdout"):
        rows = read_split(tmp_path / "out", split)
        assert rows.units is not None and rows.pairs is not None
        for unit, pair in zip(rows.units, rows.pairs, strict=True):
            question = pair.partition(" answer")[0]
            assert seen.setdefault(question, f"{split} {unit}") == f"{split} {unit}"
        if split != "train":
            assert rows.groups == rows.units or len(set(rows.groups or ())) == len(set(rows.units))
    assert read_facts(tmp_path / "out").truncate == "first"


def test_larger_groups_divide_and_are_drawn(tmp_path: Path) -> None:
    knobs = RowsSlice(task=ANSWERS, selection_rows=10, group="book")
    prepare_rows(write_answers(tmp_path), knobs, tmp_path / "out")
    rows = read_split(tmp_path / "out", "validation")
    assert rows.units is not None and rows.groups is not None
    assert len(set(rows.units)) == 3 * len(set(rows.groups))


def test_groups_whose_names_differ_in_case_or_white_space_are_one(tmp_path: Path) -> None:
    """Half of the rows of a book named it in capitals, and were on the other side of a split."""
    table = pq.read_table(write_answers(tmp_path))
    books = [name.as_py() if row % 2 else name.as_py().upper() + " " for row, name in enumerate(table.column("book"))]
    pq.write_table(table.drop_columns("book").append_column("book", [books]), tmp_path / "two.parquet")
    spec = TaskSpec(name="two", text="question", pair="answer")
    knobs = RowsSlice(task=spec, selection_rows=12, holdout_rows=24, group="book")
    splits = divided_rows(tmp_path / "two.parquet", knobs)[0]
    sides = [{folded(name) for name in rows.groups or ()} for rows in splits.values()]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 20


def test_rows_of_groups_that_are_written_in_one_way_are_drawn_as_before() -> None:
    rows = Split("t", ["a", "b", "c"], ["A p", "B p", "A p"], [0, 1, 0])
    assert divided_by_text({"train": rows}, "pair")["train"].groups == ["A p", "B p", "A p"]
    other = Split("v", ["d"], ["a  P"], [0])
    both = divided_by_text({"train": rows, "validation": other}, "pair")
    assert both["validation"].groups == ["A p"] and divided_by_text({"train": rows}, "")["train"].groups is None


@pytest.mark.parametrize("group", [None, "book"])
def test_fewer_training_rows_are_whole_groups(group: str | None, tmp_path: Path) -> None:
    """The last group was cut: a question with one of its two answers, a passage with some of its questions."""
    table, size = write_answers(tmp_path), 2 if group is None else 6
    knobs = RowsSlice(task=ANSWERS, selection_rows=12, group=group, train_rows=4 * size + 1)
    prepare_rows(table, knobs, tmp_path / "out")
    rows = read_split(tmp_path / "out", "train")
    by_group = Counter(map(str, rows.units or []) if group is None else rows.texts)  # a book has one passage
    assert sorted(by_group.values()) == [size] * 4
    prepare_rows(table, knobs.model_copy(update={"train_rows": 3}), tmp_path / "few")
    few = len(read_split(tmp_path / "few", "train").texts)
    assert few == (2 if group is None else 3), "at most so many, however large the first group is"


def test_a_question_in_several_groups_is_refused(tmp_path: Path) -> None:
    table = write_answers(tmp_path, book=(1, "book 9"))
    with pytest.raises(DataError, match="the rows whose unit is '0' are in several groups of book"):
        prepare_rows(table, RowsSlice(task=ANSWERS, selection_rows=10, group="book"), tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"unit": (4, None)},
            "row 5: the group in column 'unit' is empty; give each row a group, or remove task.group",
        ),
        ({"answer": (4, None)}, "row 5: the text in column '{question} {answer}' is empty"),
    ],
)
def test_faulty_rows_are_named(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        prepare_rows(write_answers(tmp_path, **changes), RowsSlice(task=ANSWERS, selection_rows=10), tmp_path / "out")
    assert sentence in str(refused.value)


def test_a_passage_that_is_not_there_is_refused(tmp_path: Path) -> None:
    spec = ANSWERS.model_copy(update={"text": "{passage *unit+answer*}"})
    table = write_answers(tmp_path)
    with pytest.raises(DataError, match=r"row 5: the column 'unit' names word 2 for 'answer 4'.*\(116 rows"):
        prepare_rows(table, RowsSlice(task=spec, selection_rows=10), tmp_path / "out")


def test_a_column_of_a_template_that_is_not_there_is_named(tmp_path: Path) -> None:
    spec = ANSWERS.model_copy(update={"pair": "{question} {reply}"})
    with pytest.raises(DataError, match="has no pair column 'reply'"):
        prepare_rows(write_answers(tmp_path), RowsSlice(task=spec, selection_rows=10), tmp_path / "out")


def test_a_judging_set_has_groups_of_its_own(tmp_path: Path) -> None:
    table = write_answers(tmp_path)
    prepare_rows(table, RowsSlice(task=ANSWERS, selection_rows=10), tmp_path / "rows")
    knobs = {"name": "more", "task_type": "classification", "text": "passage", "pair": "answer", "label": "label"}
    prepare_judging_set(table, JudgingRowsSlice(**knobs, group="book"), tmp_path / "rows", tmp_path / "with")
    prepare_judging_set(table, JudgingRowsSlice(**knobs), tmp_path / "rows", tmp_path / "without")
    found = read_split(tmp_path / "with", "validation")
    assert found.units == found.groups and len(set(found.units or ())) == 20
    assert read_split(tmp_path / "without", "validation").units is None
    assert "group" not in JudgingRowsSlice(**knobs).key_values()


def test_a_judging_set_has_the_groups_of_the_tasks_own_rows_where_its_file_names_them(tmp_path: Path) -> None:
    """Rows of one book, drawn as if they were independent, give intervals that are too narrow."""
    table = write_answers(tmp_path)
    prepare_rows(table, RowsSlice(task=ANSWERS, selection_rows=10, group="book"), tmp_path / "rows")
    knobs = {"name": "more", "task_type": "classification", "text": "passage", "pair": "answer", "label": "label"}
    for drawn_by, groups in (("book", 20), ("chapter", None)):
        slice_of_set = JudgingRowsSlice(**knobs, group="unit", drawn_by=drawn_by)
        prepare_judging_set(table, slice_of_set, tmp_path / "rows", tmp_path / drawn_by)
        found = read_split(tmp_path / drawn_by, "validation")
        assert found.units is not None and found.groups is not None
        assert len(set(found.groups)) == (groups or len(set(found.units)))
    with pytest.raises(DataError, match="the rows whose unit is '0' are in several groups of book"):
        prepare_judging_set(
            write_answers(tmp_path, book=(1, "book 9")),
            JudgingRowsSlice(**knobs, group="unit", drawn_by="book"),
            tmp_path / "rows",
            tmp_path / "refused",
        )
    assert "drawn_by" not in JudgingRowsSlice(**knobs).key_values()


def test_a_task_without_groups_and_truncation_is_keyed_and_written_as_before(tmp_path: Path) -> None:
    spec = TaskSpec(name="mine", text="passage")
    values = RowsSlice(task=spec).key_values()["task"]
    assert isinstance(values, dict) and not {"truncate", "group"} & {*values}
    prepare_rows(write_answers(tmp_path), RowsSlice(task=spec, selection_rows=10), tmp_path / "out")
    assert "truncate" not in json.loads((tmp_path / "out" / "task.json").read_text())
    names = pq.read_schema(tmp_path / "out" / "train.parquet").names
    assert names == ["id", "text", "pair", "label", "group"]
    both = RowsSlice(task=ANSWERS).key_values()["task"]
    assert isinstance(both, dict) and (both["truncate"], both["group"]) == ("first", "unit")
