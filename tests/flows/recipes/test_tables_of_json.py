"""JSON as tools and public data sets write it, through ``limbeck init``: values of several types in one column,
verdicts of annotators, questions with their options inside, parsed sentences, and labels that may mean that there is
none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flows.recipes.starter import Wishes, starter_recipe
from flows.run.recipe_file import recipe_of_text
from tasks.errors import DataError
from tasks.ports.rows.prepared import divided_rows
from tasks.ports.rows.splits import Split
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tasks.results.facts import RowsFacts
from tests.flows.recipes.test_tables_of_types import PASSAGES, QUESTIONS

ROWS = 120
TEXTS, ASKED = PASSAGES[:ROWS], QUESTIONS[:ROWS]
LABELS = ["good", "bad"] * (ROWS // 2)


def recipe_of(folder: Path, rows: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]]) -> tuple[Recipe, str]:
    """Return the recipe of rows in a JSON file, or of columns, and the notes."""
    if isinstance(rows, Mapping):
        rows = [dict(zip(rows, cells, strict=True)) for cells in zip(*rows.values(), strict=True)]
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    made = starter_recipe(str(path), folder / "mine.yaml", Wishes())
    return recipe_of_text(made.text, path), "\n".join(made.notes)


def divided(recipe: Recipe, source: Path) -> tuple[dict[str, Split], list[str] | None, RowsFacts]:
    return divided_rows(source, RowsSlice(**dict(recipe.data), task=recipe.spec))


def read(folder: Path, rows: Any) -> tuple[Recipe, dict[str, Split], list[str], RowsFacts]:
    """Return the recipe of rows, their splits, the names of their classes, and the facts."""
    recipe, _ = recipe_of(folder, rows)
    splits, names, facts = divided(recipe, folder / "rows.jsonl")
    return recipe, splits, names or [], facts


def every(splits: Mapping[str, Split], column: str) -> list[Any]:
    return [value for rows in splits.values() for value in getattr(rows, column)]


# --- values of several types ------------------------------------------------------------------------------------------


def test_numbers_among_texts_are_texts_and_texts_have_no_quotes(tmp_path: Path) -> None:
    """A single number in a column made all others arrive as their JSON, in quotes."""
    _, splits, names, _ = read(tmp_path, {"text": [404, *TEXTS[1:]], "label": LABELS})
    assert sorted(every(splits, "texts")) == sorted(["404", *TEXTS[1:]]) and names == ["bad", "good"]


def test_numbers_among_names_are_classes_by_what_is_written(tmp_path: Path) -> None:
    recipe, splits, _, _ = read(tmp_path, {"text": TEXTS, "label": [1, "1", 0, "0"] * (ROWS // 4)})
    assert recipe.spec.labels == ("0", "1") and sorted({*every(splits, "labels")}) == [0, 1]


def test_lists_among_texts_are_refused_where_a_text_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"text": TEXTS[:2] if row == 7 else text, "label": LABELS[row]} for row, text in enumerate(TEXTS)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    knobs = RowsSlice.model_validate({"task": {"name": "mine"}, "selection_rows": 10, "holdout_rows": 10})
    with pytest.raises(DataError, match="row 8: the text in column 'text' is no text but a number or a list"):
        divided_rows(path, knobs)
    with pytest.raises(DataError, match="'text' holds lists or objects"):
        starter_recipe(str(path), tmp_path / "mine.yaml", Wishes())


def test_an_unread_column_of_several_types_does_no_harm(tmp_path: Path) -> None:
    extra = [{"a": 1}, "x", 3, None, [1, "y"]] * (ROWS // 5)
    recipe, splits, _, _ = read(tmp_path, {"text": TEXTS, "label": LABELS, "extra": extra})
    assert recipe.spec.text == "text" and sorted(every(splits, "texts")) == sorted(TEXTS)


def test_a_column_called_paragraphs_may_hold_texts(tmp_path: Path) -> None:
    """It was read as SQuAD's, with a traceback."""
    recipe, splits, _, _ = read(tmp_path, {"paragraphs": TEXTS, "label": LABELS})
    assert recipe.spec.text == "paragraphs" and sorted(every(splits, "texts")) == sorted(TEXTS)
    mixed = {"text": ASKED, "label": LABELS, "paragraphs": [3, [TEXTS[0]], "x"] * (ROWS // 3)}
    assert recipe_of(tmp_path, mixed)[0].spec.text == "text"


def test_numbers_among_options_are_options(tmp_path: Path) -> None:
    options = [[f"old {row}", row, f"new {row}", 3.5] for row in range(ROWS)]
    recipe, splits, _, _ = read(tmp_path, {"question": ASKED, "choices": options, "answer": [0, 1, 2, 3] * 30})
    assert (recipe.spec.kind, recipe.spec.pair) == ("choices", "{choices[]}")
    assert sorted(every(splits, "pairs")) == sorted(f"old {row}\n{row}\nnew {row}\n3.5" for row in range(ROWS))


def test_mixed_answers_stand_in_their_passages(tmp_path: Path) -> None:
    """An answer, or the list of all of them."""
    words = [text.split()[3] for text in TEXTS]
    answers = [[word] if row % 3 else word for row, word in enumerate(words)]
    recipe, _, _, facts = read(tmp_path, {"context": TEXTS, "question": ASKED, "answer": answers})
    assert recipe.spec.kind == "spans" and sum(facts.rows.values()) == ROWS and not facts.faulty


# --- chats ------------------------------------------------------------------------------------------------------------


def chat(row: int, **further: Any) -> dict[str, Any]:
    asked, said = {"role": "user", "content": ASKED[row]}, {"role": "assistant", "content": TEXTS[row], **further}
    return {"messages": [asked, said]}


@pytest.mark.parametrize(
    "further",
    [
        {"weight": 1},
        {"content": [{"type": "text", "text": TEXTS[0]}]},
        {"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    ],
)
def test_messages_with_further_keys_and_with_parts_are_chats(tmp_path: Path, further: dict[str, Any]) -> None:
    recipe, splits, _, _ = read(tmp_path, [chat(0, **further), *map(chat, range(1, ROWS))])
    content = further.get("content")
    said = "\n".join(part["text"] for part in content) if content else TEXTS[0]
    assert recipe.spec.kind == "chats" and f"␞user␟ {ASKED[0]}\n␞assistant␟ {said}" in every(splits, "texts")


@pytest.mark.parametrize(
    ("further", "sentence"),
    [
        ({"weight": 0}, "message 2: the weight is 0, and a model learns from all messages of the assistant; leave"),
        ({"content": None, "tool_calls": [{"id": "a", "type": "function"}]}, "message 2: the message calls a tool"),
        ({"content": [{"type": "image_url", "image_url": "x"}]}, "message 2: the content is [{'type': 'image_url'"),
        ({"content": {"a": 1}}, "a content is a text, or a list of parts of texts"),
    ],
)
def test_messages_that_cannot_be_learned_are_named(tmp_path: Path, further: dict[str, Any], sentence: str) -> None:
    recipe, notes = recipe_of(tmp_path, [*map(chat, range(ROWS - 1)), chat(ROWS - 1, **further)])
    assert recipe.spec.kind == "chats" and f"row {ROWS}, column 'messages'" in notes and sentence in notes


# --- labels that may mean that there is none --------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[-1, 0, 1], [-1, 1, 1], [-2, -1, 0, 1, 2], [-1.0, 0.0, 1.0]])
def test_minus_one_is_a_class_among_numbers(tmp_path: Path, values: list[float]) -> None:
    """Opinions are often graded from -1 to 1, and a third of the rows was left out in silence."""
    labels = (values * ROWS)[:ROWS]
    recipe, splits, _, facts = read(tmp_path, {"text": TEXTS, "sentiment": labels})
    assert recipe.spec.labels == tuple(str(value) for value in sorted({*values}))
    assert sum(map(len, splits.values())) == ROWS and not facts.unlabelled["train"]
    says = any("-1 is a class beside" in line for line in facts.read)
    assert says == (set(recipe.spec.labels) == {"-1", "0", "1"}), "beside 0 and 1, it may be meant as none"


def test_minus_one_is_no_label_where_the_recipe_names_others(tmp_path: Path) -> None:
    recipe, _ = recipe_of(tmp_path, {"text": TEXTS, "label": [-1, 0, 1] * (ROWS // 3)})
    without = recipe.model_copy(update={"task": recipe.spec.model_copy(update={"labels": ("0", "1")})})
    facts = divided(without, tmp_path / "rows.jsonl")[2]
    assert facts.unlabelled["train"] == ROWS // 3 and sum(facts.rows.values()) == 2 * ROWS // 3


def test_a_rare_dash_is_no_label(tmp_path: Path) -> None:
    """SNLI has it where annotators did not agree. As common as the others, it is a class like plus and minus."""
    pair = {"sentence1": TEXTS, "sentence2": ASKED}
    rare = (["-", *["contradiction", "entailment", "neutral"] * ROWS])[:ROWS]
    recipe, _, _, facts = read(tmp_path, {**pair, "gold_label": rare})
    assert recipe.spec.labels == ("contradiction", "entailment", "neutral") and facts.unlabelled["train"] == 1
    signs = {**pair, "gold_label": ["-", "+"] * (ROWS // 2)}
    assert recipe_of(tmp_path, signs)[0].spec.labels == ("+", "-")


# --- annotators and public data sets ----------------------------------------------------------------------------------


def marked(row: int, verdict: str) -> dict[str, Any]:
    words = TEXTS[row].split()
    start = len(" ".join(words[:3])) + 1
    tokens = [{"text": word, "start": 0, "end": 1, "id": place, "ws": True} for place, word in enumerate(words)]
    span = {"start": start, "end": start + len(words[3]), "token_start": 3, "token_end": 3, "label": "CITY"}
    return {"text": TEXTS[row], "tokens": tokens, "spans": [span] if row % 4 else [], "answer": verdict}


def test_entities_of_prodigy_are_read_and_refused_rows_are_not(tmp_path: Path) -> None:
    """Its tokens are objects beside the text, and were taken for the words; its verdicts became classes."""
    verdicts = ["ignore", "reject", *["accept"] * (ROWS - 2)]
    recipe, splits, _, facts = read(tmp_path, [marked(row, verdict) for row, verdict in enumerate(verdicts)])
    assert (recipe.spec.kind, recipe.spec.text, recipe.spec.label) == ("tokens", "tokens", "tags")
    assert sorted(every(splits, "texts")) == sorted(TEXTS[2:]) and facts.unlabelled["train"] == 2
    assert any("2 rows without, because their answer is not accept" in line for line in facts.read)


def test_questions_with_their_options_inside_are_read(tmp_path: Path) -> None:
    """ARC's and CommonsenseQA's own files; the id was taken for the text."""
    rows = [
        {
            "id": f"Mercury_{row}",
            "question": {
                "stem": ASKED[row],
                "choices": [
                    {"label": key, "text": f"{key.lower()} {text}"} for key, text in zip("ABCD", TEXTS, strict=False)
                ],
            },
            "answerKey": "ABCD"[row % 4],
        }
        for row in range(ROWS)
    ]
    recipe, notes = recipe_of(tmp_path, rows)
    assert (recipe.spec.kind, recipe.spec.text) == ("choices", "question.stem"), notes
    assert (recipe.spec.pair, recipe.spec.label) == ("{question.choices.text[]}", "answerKey, question.choices.label")


def test_parsed_sentences_and_ids_are_no_texts(tmp_path: Path) -> None:
    columns = {
        "pairID": [f"{row} of a long id of the pair" * 4 for row in range(ROWS)],
        "sentence1_parse": [f"(ROOT (S (NP {text})) (VP {text}))" for text in TEXTS],
        "sentence1": TEXTS,
        "sentence2": ASKED,
        "gold_label": LABELS,
    }
    recipe, _ = recipe_of(tmp_path, columns)
    assert (recipe.spec.text, recipe.spec.pair) == ("sentence1", "sentence2")


def test_questions_about_one_text_are_divided_by_it_where_many_rows_would_be_lost(tmp_path: Path) -> None:
    """Of DREAM, a third of the training rows was removed, because other questions of their dialogues were held back."""
    columns = {
        "dialogue": [TEXTS[row // 3] for row in range(ROWS)],
        "question": ASKED,
        "choices": [[f"old {row}", f"new {row}"] for row in range(ROWS)],
        "label": [0, 1] * (ROWS // 2),
    }
    recipe, notes = recipe_of(tmp_path, columns)
    assert recipe.data.group == "dialogue" and "group: dialogue, because its texts recur" in notes
    single, _ = recipe_of(tmp_path, {**columns, "dialogue": TEXTS})
    assert single.data.group is None


# --- files beside train -----------------------------------------------------------------------------------------------


def folder_with(folder: Path, name: str, labelled: bool = True) -> tuple[Recipe, str, str]:
    """Return the recipe of a folder with a train file and another one, its text, and the notes."""
    (folder / "train.csv").write_text(
        "text,label\n" + "".join(f"{a},{b}\n" for a, b in zip(TEXTS, LABELS, strict=True))
    )
    cells = [f"{text},{LABELS[row] if labelled else -1}\n" for row, text in enumerate(ASKED[:20])]
    (folder / name).write_text("text,label\n" + "".join(cells))
    made = starter_recipe(str(folder), folder / "mine.yaml", Wishes())
    return recipe_of_text(made.text, folder / "train.csv"), made.text, "\n".join(made.notes)


def test_a_file_called_val_is_the_validation_split(tmp_path: Path) -> None:
    """It was left out in silence, and validation rows were drawn from train."""
    recipe, _, notes = folder_with(tmp_path, "val.csv")
    splits = divided(recipe, tmp_path)[0]
    assert "not read" not in notes and {*splits["validation"].texts} == {*ASKED[:20]}


def test_a_file_whose_name_begins_like_val_is_no_validation_split(tmp_path: Path) -> None:
    recipe, _, _ = folder_with(tmp_path, "values.csv")
    assert not {*divided(recipe, tmp_path)[0]["validation"].texts} & {*ASKED}


@pytest.mark.parametrize("name", ["eval.csv", "test.csv"])
def test_other_files_judge_only_with_labels(tmp_path: Path, name: str) -> None:
    _, text, notes = folder_with(tmp_path, name)
    assert f"not read: {name}" in notes and "data.judge, a comment in the recipe" in notes
    assert f"split: {name.removesuffix('.csv')}}}" in text
    _, text, notes = folder_with(tmp_path, name, labelled=False)
    assert f"not read: {name}" in notes and "without labels no other rows can judge" in notes and "judge:" not in text
