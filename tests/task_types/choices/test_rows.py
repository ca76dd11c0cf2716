"""Questions with options in tables: every form of options and of labels, what `init` says, and hostile tables that get
a sentence each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.recipes.starter import starter_recipe
from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.row_files import StoredRows, read_split
from tasks.ports.rows.table_files import write_table
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tasks.results.facts import RowsFacts
from tests.task_types.choices.tables import questions, write_questions

LISTED = {"text": "q", "pair": "{o[]}", "label": "a"}
APART = {"text": "q", "pair": "{x | y | z}", "label": "a"}
TWO = {"q": ["Q?", "R?"], "o": [["one", "two"], ["three", "four"]], "a": [0, 1]}


def prepared(folder: Path, columns: dict[str, list[Any]], task: dict[str, Any]) -> tuple[StoredRows, RowsFacts]:
    """Prepare rows of which none is held back but the last one; return train and facts."""
    write_table(folder / "train.parquet", columns)
    write_table(folder / "validation.parquet", {name: values[-1:] for name, values in columns.items()})
    knobs = RowsSlice(task=TaskSpec(name="about", kind="choices", **task), selection_rows=0, purge=False)
    facts = prepare_rows(folder, knobs, folder / "rows")
    return read_split(folder / "rows", "train"), facts


@pytest.mark.parametrize(
    ("label", "stored"),
    [
        (1, "1/3"),
        (1.0, "1/3"),
        ("1", "1/3"),
        ("B", "1/3"),
        ("b", "1/3"),
        ("two  words", "1/3"),
        (None, None),
        (-1, None),
    ],
)
def test_a_label_names_an_option_by_place_letter_or_text(tmp_path: Path, label: Any, stored: str | None) -> None:
    columns = {"q": ["Q?", "R?"], "o": [["one", "two words", "three"]] * 2, "a": [label, label]}
    if stored is None:
        columns = {name: [*values, values[0]] for name, values in columns.items()}
        columns["a"][-1] = "one" if label is None else 0
    rows, facts = prepared(tmp_path, columns, LISTED)
    assert rows.labels == ([stored] * 2 if stored else ["0/3"]) and rows.pairs is not None
    assert rows.pairs[0] == "one\ntwo words\nthree"
    assert facts.unlabelled["train"] == (0 if stored else 2)


@pytest.mark.parametrize(
    ("options", "labels", "stored"),
    [
        ([["Vitamin C", "Vitamin A"], ["plan B", "plan A"]], ["A", "B"], ["0/2", "1/2"]),
        ([["type 1", "type 0"], ["7", "8"]], ["1", "0"], ["1/2", "0/2"]),
        ([["Vitamin C", "A"], ["x", "y"]], ["A", "B"], ["0/2", "1/2"]),  # one of them is by chance an option
        ([["B", "A"], ["A", "B"]], ["A", "A"], ["1/2", "0/2"]),  # all are options
        ([["1", "0"], ["7", "1"]], ["1", "7"], ["0/2", "0/2"]),  # 7 is no place
    ],
)
def test_an_option_that_ends_with_a_letter_is_not_named_by_it(
    tmp_path: Path, options: list[list[str]], labels: list[str], stored: list[str]
) -> None:
    """RACE has options such as "Vitamin A" and labels such as A: the wrong option would be learned, silently."""
    rows, _ = prepared(tmp_path, {"q": ["Q?", "R?"], "o": options, "a": labels}, LISTED)
    assert rows.labels == stored


@pytest.mark.parametrize(
    ("options", "label", "place"),
    [
        (["New York", "York", "Leeds"], "York", 1),
        (["They will not rise", "They will rise", "rise"], "rise", 2),
        (["They will not rise", "They will rise", "rise"], "They will rise", 1),
        (["Less than 30 minutes.", "More than 30 minutes.", "30 minutes."], "30 minutes.", 2),
        (["the dog", "the big dog", "the"], "the dog", 0),
    ],
)
@pytest.mark.parametrize("pair", ["{o[]}", "{q} {o[]}"])
def test_an_option_that_ends_with_another_one_is_not_named_by_it(
    pair: str, options: list[str], label: str, place: int, tmp_path: Path
) -> None:
    """Behind the question, which `init` writes before each option, the first that ends so was taken, silently."""
    columns = {"q": ["Which one is it ?"] * 2, "o": [options] * 2, "a": [label, options[0]]}
    rows, _ = prepared(tmp_path, columns, {**LISTED, "pair": pair})
    assert rows.labels == [f"{place}/{len(options)}", f"0/{len(options)}"]


def test_keys_beside_the_label_name_options(tmp_path: Path) -> None:
    """In ARC, a key "2" is the second option where keys are numbers, and no place from 0 on."""
    columns = {"q": ["Q?", "R?"], "o": [["u", "v"], ["w", "x"]], "k": [["1", "2"], ["A", "B"]], "a": ["2", "A"]}
    rows, _ = prepared(tmp_path, columns, {**LISTED, "label": "a, k"})
    assert rows.labels == ["1/2", "0/2"]
    nested = {"q": ["Q?"] * 2, "c": [{"text": ["u", "v"], "label": ["1", "2"]}] * 2, "a": ["2", "1"]}
    (tmp_path / "nested").mkdir()
    rows, _ = prepared(tmp_path / "nested", nested, {"text": "q", "pair": "{c[]}", "label": "a, c"})
    assert rows.pairs == ["u\nv"] * 2 and rows.labels == ["1/2", "0/2"]


def test_rows_differ_in_their_number_of_options_and_columns_name_them(tmp_path: Path) -> None:
    columns = {"q": ["Q?", "R?"], "x": ["u", "v"], "y": ["w\nw", "t"], "z": [None, "s"], "a": ["y", "z"]}
    rows, _ = prepared(tmp_path, columns, {**APART, "pair": "{q} {x | y | z}"})
    assert rows.pairs == ["Q? u\nQ? w w", "R? v\nR? t\nR? s"] and rows.labels == ["1/2", "2/3"]


def test_equal_options_are_counted(tmp_path: Path) -> None:
    _, facts = prepared(tmp_path, {**TWO, "o": [["one", "one"], ["three", "four"]]}, LISTED)
    assert any("1 row has two equal options" in line for line in facts.read)


@pytest.mark.parametrize("absent", ["", None, "  "])
def test_a_question_without_its_paragraph_is_asked_and_counted(tmp_path: Path, absent: str | None) -> None:
    """Some questions of SciQ have no paragraph: without them, the model would be judged on easier rows."""
    columns = {**TWO, "p": [absent, "It is three."]}
    rows, facts = prepared(tmp_path, columns, {**LISTED, "text": "p", "pair": "{q} {o[]}"})
    assert rows.texts == [absent or "", "It is three."] and rows.pairs == ["Q? one\nQ? two", "R? three\nR? four"]
    assert any("1 rows have no text in column 'p', and are asked without it" in line for line in facts.read)
    assert not facts.faulty


def test_questions_without_a_paragraph_share_no_text_with_each_other(tmp_path: Path) -> None:
    """An empty paragraph is none that two rows have in common: they are drawn like others, and not purged."""
    columns = {**questions(60), "context": [""] * 60, "q": [f"what of number {number}" for number in range(60)]}
    write_table(tmp_path / "train.parquet", columns)
    task = TaskSpec(name="about", kind="choices", text="context", pair="{q} {choices[]}", label="label")
    facts = prepare_rows(tmp_path, RowsSlice(task=task, selection_rows=0), tmp_path / "rows")
    assert facts.rows["validation"] > 0 and facts.purged.rows == 0


@pytest.mark.parametrize(
    ("changes", "task", "sentence"),
    [
        ({"q": ["Q?", ""]}, LISTED, "row 2: the text in column 'q' is empty"),
        ({"a": [2, 0]}, LISTED, "row 1: the label 2 is none of 0 to 1, the places of 2 options; places are counted"),
        ({"a": ["C", "A"]}, LISTED, "row 1: the label 'C' names none of 2 options ('one', 'two'); write a place"),
        ({"a": ["five", "three"]}, LISTED, "row 1: the label 'five' names none of 2 options"),
        ({"a": [0.5, 1.0]}, LISTED, "row 1: the label 0.5 is neither a place, nor a letter, nor an option's text"),
        (
            {"a": [["A", "B"], ["B"]]},
            LISTED,
            "row 1: the label ['A', 'B'] is neither a place, nor a letter, nor an option's text",
        ),
        ({"a": [[0, 1], [1]]}, LISTED, "nor an option's text; one is right"),
        ({"o": [["one"], ["three", "four"]]}, LISTED, "row 1: there is one option, 'one', and a choice needs 2"),
        ({"o": [["one", " "], ["three", "four"]]}, LISTED, "row 1: text 2 of the column 'o' is empty"),
        ({"o": [[], ["three", "four"]]}, LISTED, "row 1: the text in column '{o[]}' is empty"),
        ({"o": ["one", "two"]}, LISTED, "row 1: the column 'o' holds no list; name it without []"),
        ({}, {**LISTED, "pair": "o"}, "the text in column 'o' is no text but a number or a list"),
        ({}, {**LISTED, "pair": "{p[]}"}, "has no pair column 'p'; it has q, o, a"),
        ({}, {**LISTED, "pair": "{o}"}, "the column 'o' holds a list or an object, and a template needs texts"),
        ({"x": ["u", "v"], "y": [None, "w"], "z": ["t", "s"]}, APART, "text 2 of one of the columns x, y, z is empty"),
        ({"k": [["A"], ["A", "B"]]}, {**LISTED, "label": "a, k"}, "row 1: there are 1 keys beside the label 0, and 2"),
        ({"k": [["A", "B"]] * 2}, {**LISTED, "label": "a, k"}, "row 1: the label 0 is none of the keys A, B"),
        (
            {"o": [["in New York", "near York"], ["three", "four"]], "a": ["York", "four"]},
            LISTED,
            "row 1: the label 'York' ends 2 of 2 options ('in New York', 'near York'); write a place from 0 on",
        ),
        (
            {"x": ["u", "v"], "y": ["t", "w"], "z": [None, "s"], "a": ["z", "x"]},
            APART,
            "row 1: the label 'z' is a column without an option in this row",
        ),
        (
            {"o": [["2", "3", "1", "4"], ["1", "0"]], "a": [3, 1]},
            LISTED,
            "options are numbers, and so are the labels in column 'a', which may be options or their places; write",
        ),
    ],
)
def test_a_hostile_table_gets_a_sentence(
    tmp_path: Path, changes: dict[str, list[Any]], task: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DataError) as told:
        prepared(tmp_path, {**TWO, **changes}, task)
    assert sentence in str(told.value)


ASKED = [f"What is {number}?" for number in range(30)]
ANSWERS_OF = [[f"first {number}", f"second {number}"] for number in range(30)]
FIRSTS, SECONDS = ([pair[place] for pair in ANSWERS_OF] for place in (0, 1))
THIRDS = [f"third {number}" for number in range(30)]
TABLES: dict[str, tuple[dict[str, list[Any]], dict[str, Any], str]] = {
    "lists": (
        {"context": ASKED, "choices": ANSWERS_OF, "label": [0, 1] * 15},
        {"text": "context", "pair": "{choices[]}", "label": "label"},
        "each row has 2 options, and label names the right one; guessing is right in 50%",
    ),
    "copa": (
        {
            "premise": ASKED,
            "choice1": FIRSTS,
            "choice2": SECONDS,
            "question": ["cause", "effect"] * 15,
            "label": [0, 1] * 15,
        },
        {"text": "{premise} What was the {question}?", "pair": "{choice1 | choice2}", "label": "label"},
        "question says what is asked about premise",
    ),
    "race": (
        {"article": ASKED, "question": ASKED, "options": ANSWERS_OF, "answer": ["A", "B"] * 15},
        {"text": "article", "pair": "{question} {options[]}", "label": "answer"},
        "question stands before each option",
    ),
    "arc": (
        {
            "question": ASKED,
            "choices": [{"text": pair, "label": ["1", "2"]} for pair in ANSWERS_OF],
            "answerKey": ["1", "2"] * 15,
        },
        {"text": "question", "pair": "{choices[]}", "label": "answerKey, choices"},
        "answerKey, choices names the right one",
    ),
    "medmcqa": (
        {"question": ASKED, "opa": FIRSTS, "opb": SECONDS, "exp": ASKED, "cop": [0, 1] * 15},
        {"text": "question", "pair": "{opa | opb}", "label": "cop"},
        "cop names the right one",
    ),
    "sciq": (
        {
            "question": ASKED,
            "distractor2": THIRDS,
            "distractor1": SECONDS,
            "correct_answer": FIRSTS,
            "support": [""] * 30,
        },
        {
            "text": "question",
            "pair": "{correct_answer | distractor1 | distractor2}",
            "label": "correct_answer",
        },
        "correct_answer names the right one; guessing is right in 33%",
    ),
    "sciq with its paragraphs": (
        {
            "question": ASKED,
            "distractor1": SECONDS,
            "correct_answer": FIRSTS,
            "support": ["", *(f"Paragraph {number} says it." for number in range(29))],
        },
        {
            "text": "support",
            "pair": "{question} {correct_answer | distractor1}",
            "label": "correct_answer",
        },
        'support is read; without it (text: question, pair: "{correct_answer | distractor1}") this is a test of knowl',
    ),
    "swag": (
        {"sent1": ASKED, "sent2": ["He"] * 30, "ending0": FIRSTS, "ending1": SECONDS, "label": [0, 1] * 15},
        {"text": "sent1", "pair": "{sent2} {ending0 | ending1}", "label": "label"},
        "sent2 stands before each option",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_init_recognises_options_and_says_why(name: str, tmp_path: Path) -> None:
    columns, task, reason = TABLES[name]
    write_table(tmp_path / "train.parquet", columns)
    starter = starter_recipe(str(tmp_path / "train.parquet"), tmp_path / "mine.yaml")
    found = Recipe.model_validate(YAML(typ="safe").load(starter.text)).spec
    assert found.kind == "choices" and {role: getattr(found, role) for role in task} == task
    assert any(reason in note for note in starter.notes)


def test_a_table_whose_label_names_no_option_is_none_of_choices(tmp_path: Path) -> None:
    columns = {**questions(40), "label": ["good", "bad"] * 20}
    write_table(tmp_path / "train.parquet", columns)
    assert "kind: classification" in starter_recipe(str(tmp_path / "train.parquet"), tmp_path / "mine.yaml").text


def test_long_contexts_alone_are_cut(tmp_path: Path) -> None:
    columns = questions(40)
    columns["context"] = [f"{text} and so on" + " word" * 100 for text in columns["context"]]
    write_table(tmp_path / "train.parquet", columns)
    assert "truncate: first" in starter_recipe(str(tmp_path / "train.parquet"), tmp_path / "mine.yaml").text


def test_a_judging_set_has_options_of_its_own(tmp_path: Path) -> None:
    from tasks.ports.rows.judging_sets import prepare_judging_set
    from tasks.recipe.slices import JudgingRowsSlice

    prepared(tmp_path, TWO, LISTED)
    write_questions(tmp_path / "elsewhere", 20)
    knobs = JudgingRowsSlice(name="more", task_type="choices", text="context", pair="{choices[]}", label="label")
    facts = prepare_judging_set(tmp_path / "elsewhere" / "train.parquet", knobs, tmp_path / "rows", tmp_path / "set")
    assert facts.rows == 20 and read_split(tmp_path / "set", "validation").labels[0].endswith(("/2", "/3", "/4"))
