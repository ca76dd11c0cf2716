"""Texts that are put together from several columns: what is marked, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tasks.errors import RecipeError
from tasks.task_types.texts.templates import Unrendered, columns_in, rendered

WSC: dict[str, list[Any]] = {
    "text": ["Mark told Pete lies. He, said Bob, knew."],
    "place": [4],
    "words": ["He"],
    "word": ["tell"],
    "start": ["5"],
    "end": [9],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("text", "Mark told Pete lies. He, said Bob, knew."),
        ("{word}: {text *start:end*}", "tell: Mark * told * Pete lies. He, said Bob, knew."),
        ("{text *place+words*}", "Mark told Pete lies. * He *, said Bob, knew."),
        ("{{{word}}}", "{tell}"),
        ("{ word }", "tell"),
    ],
)
def test_a_template_is_filled(template: str, text: str) -> None:
    assert rendered(template, WSC, 1)[0] == [text]


def test_the_columns_of_a_template_are_known_before_a_table_is_read() -> None:
    assert columns_in("{word}: {text *start:end*} {word}") == ["word", "text", "start", "end"]
    assert columns_in("text") == ["text"]


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{word", "has a brace without a column"),
        ("word}", "has a brace without a column"),
        ("{} of", "has a brace without a column"),
        ("{text *start*}", r"marks nothing by \{text \*start\*\}; write"),
        ("{text *start:end}", "marks nothing"),
    ],
)
def test_a_template_that_cannot_be_read_is_refused_in_a_sentence(template: str, sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        columns_in(template)


@pytest.mark.parametrize(
    ("changes", "template", "reason"),
    [
        ({"end": [400]}, "{text *start:end*}", "name characters 5 to 400, and 'text' has 40"),
        ({"end": [5]}, "{text *start:end*}", "name characters 5 to 5"),
        ({"start": ["five"]}, "{text *start:end*}", "name characters five to 9"),
        ({"start": [-1]}, "{text *start:end*}", "name characters -1 to 9"),
        ({"place": [8]}, "{text *place+words*}", "names word 8 for 'He', and 'text' has words 0 to 7"),
        ({"text": [["Mark"]]}, "{text}", "holds a list or an object"),
    ],
)
def test_a_row_whose_passage_is_not_there_has_a_reason(changes: dict[str, Any], template: str, reason: str) -> None:
    (found,), _ = rendered(template, WSC | changes, 1)
    assert isinstance(found, Unrendered) and reason in found.reason


def test_a_row_without_a_value_has_no_text() -> None:
    assert rendered("{word}: {text}", WSC | {"word": [None]}, 1)[0] == [None]


def test_passages_that_may_not_be_meant_are_counted() -> None:
    _, inside = rendered("{text *start:end*}", WSC | {"start": [6]}, 1)
    _, others = rendered("{text *place+words*}", WSC | {"words": ["She"]}, 1)
    (one,), (other,) = inside.items(), others.items()
    assert "inside of a word" in one[0] and one[1] == 1
    assert "others than those of 'words'" in other[0] and other[1] == 1


@pytest.mark.parametrize(
    ("template", "columns", "expected"),
    [
        ("{a | b}", {"a": "one", "b": "two"}, "one\ntwo"),
        ("{a | b}", {"a": "one", "b": None}, "one"),
        ("{a | b}", {"a": None, "b": " "}, None),
        ("{q} {a | b}!", {"q": "Who?", "a": "one", "b": "two\nlines"}, "Who? one!\nWho? two lines!"),
        ("{q} {c[]}", {"q": "Who?", "c": ["one", "two"]}, "Who? one\nWho? two"),
        ("{q} {c[]}", {"q": None, "c": ["one", "two"]}, None),
        ("{c[]}", {"c": {"text": ["one"], "label": ["A"]}}, "one"),
        ("{c[]}", {"c": []}, None),
        ("{a | b}", {"a": 1, "b": 2.5}, "1\n2.5"),
    ],
)
def test_several_texts_are_lines(template: str, columns: dict[str, Any], expected: str | None) -> None:
    found, _ = rendered(template, {name: [value] for name, value in columns.items()}, 1)
    assert found == [expected] and set(columns_in(template)) == set(columns)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"a": None, "b": "two"}, "text 1 of one of the columns a, b is empty"),
        ({"a": "one", "b": ["two"]}, "one of the columns a, b holds \\['two'\\] where a text is needed"),
    ],
)
def test_a_gap_among_several_texts_is_a_sentence(columns: dict[str, Any], reason: str) -> None:
    (found,), _ = rendered("{a | b}", {name: [value] for name, value in columns.items()}, 1)
    assert isinstance(found, Unrendered) and re.fullmatch(reason, found.reason)
