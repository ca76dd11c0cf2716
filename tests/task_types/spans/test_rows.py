"""Rows of questions: forms of answers, hostile tables, divisions by passage, and what a table is guessed to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.recipes.starter import starter_recipe
from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.metrics.of_answers import NO_ANSWER, coded_answer
from tasks.ports.rows.overlap import folded
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.row_files import read_split
from tasks.ports.rows.table_files import write_table
from tasks.ports.rows.tables import read_table
from tasks.recipe.slices import RowsSlice
from tasks.task_types.interfaces import JudgingLabels, TableRows
from tasks.task_types.spans.rows import READER
from tests.task_types.spans.tables import asked, nested, write_asked

PASSAGE = "Rome is old, and Rome is big."
ROME, BIG = coded_answer(0, 4, "Rome"), coded_answer(25, 28, "big")


def given(*cells: Any, passages: list[Any] | None = None) -> TableRows:
    columns = {"text": ["what?"] * len(cells), "pair": passages or [PASSAGE] * len(cells), "label": cells}
    return TableRows("rows.json", {"text": "question", "pair": "context", "label": "answers"}, columns)


@pytest.mark.parametrize(
    ("cell", "stored"),
    [
        ({"text": ["Rome"], "answer_start": [0]}, ROME),
        ({"text": ["big", "Rome"], "answer_start": [25, 0]}, f"{BIG}|{ROME}"),
        ({"text": [], "answer_start": []}, NO_ANSWER),
        ([], NO_ANSWER),
        ([{"text": "big", "answer_start": 25}], BIG),
        ('{"text": ["big"], "answer_start": [25]}', BIG),
        ("[]", NO_ANSWER),
        ("big", BIG),
        (" big", BIG),
        ({"text": [" big"], "answer_start": [24]}, BIG),
        (["big"], BIG),
        ({"answer": "big", "answer_start": "25"}, BIG),
        ({"answer": "big", "start": None}, BIG),
        ({"answer": None, "start": 3}, NO_ANSWER),
        ({"answer": None, "start": None}, None),
        (None, None),
        ("", None),
    ],
)
def test_every_form_of_answers_is_read(cell: Any, stored: str | None) -> None:
    assert READER.labels(given(cell), None) == [stored]


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        (
            {"text": ["big"], "answer_start": [24]},
            "row 1: the answer 'big' is said to begin at character 24, where ' bi'",
        ),
        ({"text": ["big"], "answer_start": []}, "row 1: 1 answers have 0 places; give each answer its first character"),
        ({"text": ["big"], "answer_start": [-1]}, "row 1: the place -1 is no number from 0 on"),
        ({"text": ["big"], "answer_start": [2.5]}, "row 1: the place 2.5 is no number from 0 on"),
        ({"text": [" "], "answer_start": [0]}, "row 1: the answer ' ' is no text; give a passage of the context"),
        ({"text": [3], "answer_start": [0]}, "row 1: the answer 3 is no text"),
        ("small", "row 1: the answer 'small' does not stand in its passage; give a part of it, letter by letter"),
        (7, "row 1: answers are 7; give their texts and places"),
        ({"a": "big", "b": 1}, "row 1: answers are in the columns a, b; name one of texts and one of their first"),
        (
            [{"text": "Big", "answer_start": 25}],
            "the answer 'Big' is said to begin at character 25, where 'big' stands",
        ),
    ],
)
def test_a_hostile_cell_is_one_sentence(cell: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        READER.labels(given(cell), None)
    assert str(caught.value).startswith("rows.json, row 1: ") and "'answers'" in str(caught.value)


def test_hostile_tables_are_refused_in_a_sentence(tmp_path: Path) -> None:
    whole = asked(20)
    spec = TaskSpec(name="mine", kind="spans", pair="context")

    def refusal(**changes: list[Any]) -> str:
        """Return why a table with other columns is refused."""
        write_table(tmp_path / "t.parquet", {**whole, **changes})
        with pytest.raises(DataError) as caught:
            prepare_rows(tmp_path / "t.parquet", RowsSlice(task=spec, selection_rows=5), tmp_path / "rows")
        return str(caught.value)

    nothing = [{"text": [], "answer_start": []}] * 40
    typed: list[dict[str, list[Any]]] = [{"text": ["x"], "answer_start": [0]}, *nothing[1:]]
    assert "row 1: the text in column 'question' is empty" in refusal(question=["", *whole["question"][1:]])
    assert "row 2: the text in column 'context' is empty" in refusal(
        context=[PASSAGE, "  ", *whole["context"][2:]], answers=nothing
    )
    assert "said to begin at character 0" in refusal(answers=typed)
    assert "split has no question with an answer" in refusal(answers=[*nothing[1:], whole["answers"][-1]])
    del whole["context"]
    assert "has no pair column 'context'; it has question, answers" in refusal()
    bad = {"data": [{"title": "a", "paragraphs": [{"qas": []}]}]}
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    with pytest.raises(DataError, match="bad.json, article 1: a paragraph has no context or no qas"):
        read_table(tmp_path / "bad.json")
    for answers in ([{"text": "Rome"}], {"text": ["Rome"], "answer_start": [17]}):
        asked_once = {"context": PASSAGE, "qas": [{"id": "1", "question": "where?", "answers": answers}]}
        bad = {"data": [{"title": "a", "paragraphs": [asked_once]}]}
        (tmp_path / "bad.json").write_text(json.dumps(bad))
        with pytest.raises(DataError, match="bad.json, article 1: the answers .* are no list of objects"):
            read_table(tmp_path / "bad.json")


def test_an_answer_that_looks_like_json_is_one() -> None:
    passages = ["as Smith wrote [12] there", "in {3} steps", '["a"] is a list']
    stored = [coded_answer(15, 19, "[12]"), coded_answer(3, 6, "{3}"), coded_answer(2, 3, "a")]
    assert READER.labels(given("[12]", "{3}", '["a"]', passages=passages), None) == stored


def test_an_answer_without_a_place_that_stands_twice_is_noted() -> None:
    assert READER.notes(given("Rome", "big"), None) == [
        "rows.json: 1 answers without a place stand several times in their passage; the first counts"
    ]
    assert READER.notes(given({"text": ["Rome"], "answer_start": [17]}), None) == []


def test_questions_of_one_passage_share_a_split(tmp_path: Path) -> None:
    spec = TaskSpec(name="mine", kind="spans", pair="context")
    facts = prepare_rows(write_asked(tmp_path, 60), RowsSlice(task=spec, selection_rows=10), tmp_path / "rows")
    assert facts.purged is not None and facts.purged.way == "group" and facts.leaked["validation"] == 0
    passages = [{*(read_split(tmp_path / "rows", split).pairs or ())} for split in ("train", "selection", "validation")]
    assert not passages[0] & passages[1] and not passages[0] & passages[2] and not passages[1] & passages[2]
    held = read_split(tmp_path / "rows", "validation")
    assert held.groups is not None and len({*held.groups}) == len(passages[2]), "the unit of intervals is the passage"


def test_copies_of_a_passage_that_are_written_in_two_ways_share_a_split(tmp_path: Path) -> None:
    """They were two groups, so that one copy was learned from and the other one judged."""
    table = asked(60)
    other = {
        "question": table["question"],
        "context": [context.upper() for context in table["context"]],
        "answers": [{**one, "text": [text.upper() for text in one["text"]]} for one in table["answers"]],
    }
    write_table(tmp_path / "twice.parquet", {name: [*column, *other[name]] for name, column in table.items()})
    knobs = RowsSlice(task=TaskSpec(name="mine", kind="spans", pair="context"), selection_rows=16)
    facts = prepare_rows(tmp_path / "twice.parquet", knobs, tmp_path / "twice")
    passages = [
        {folded(text) for text in read_split(tmp_path / "twice", split).pairs or ()}
        for split in ("train", "selection", "validation")
    ]
    assert not passages[0] & passages[1] and not passages[0] & passages[2] and not passages[1] & passages[2]
    assert facts.rows["selection"] == 4 * len(passages[1]), "two questions about each of two copies"
    assert facts.groups["validation"] == len(passages[2]), "intervals draw both copies together"


def test_the_nested_form_is_the_flat_one(tmp_path: Path) -> None:
    (tmp_path / "squad.json").write_text(json.dumps(nested(12)))
    table, opened = read_table(tmp_path / "squad.json")
    assert opened.columns == ("id", "title", "context", "question", "answers") and "of paragraphs" in opened.said
    flat = asked(12)
    rows = {(question, context) for question, context in zip(flat["question"], flat["context"], strict=True)}
    assert {(row["question"], row["context"]) for row in table.to_pylist()} == rows
    assert {str(row["answers"]) for row in table.to_pylist()} == {str(one) for one in flat["answers"]}


def test_a_table_of_questions_is_guessed_and_says_why(tmp_path: Path) -> None:
    found = starter_recipe(str(write_asked(tmp_path)), tmp_path / "mine.yaml")
    assert "kind: spans" in found.text and "the answers to question in answers stand in context" in found.text
    assert "% of the questions have none" in found.text and "text: question" in found.text


def test_a_flat_table_of_texts_is_guessed_if_its_answers_stand_in_their_passages(tmp_path: Path) -> None:
    whole = {name: values[:] for name, values in asked(40, without=0).items()}
    whole["answer"] = [one["text"][0] for one in whole.pop("answers")]
    write_table(tmp_path / "t.parquet", whole)
    assert "kind: spans" in starter_recipe(str(tmp_path / "t.parquet"), tmp_path / "mine.yaml").text
    write_table(tmp_path / "t.parquet", {**whole, "answer": ["yes", "no"] * 40})
    assert "kind: spans" not in starter_recipe(str(tmp_path / "t.parquet"), tmp_path / "mine.yaml").text


def test_labels_of_a_judging_set_are_those_of_the_task() -> None:
    assert READER.judging_labels(given("big", None), JudgingLabels("here"), None) == ([BIG, None], None)
    with pytest.raises(DataError, match="here: answers have no classes"):
        READER.judging_labels(given("big"), JudgingLabels("here", classes={"a": ["b"]}), None)
