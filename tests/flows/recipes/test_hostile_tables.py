"""Tables as strangers have them: ``limbeck init`` reads what they mean, or says in one sentence what to change. Each of
these was a traceback, a recipe of another type, or columns left out without a word."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from flows.recipes.starter import starter_recipe
from flows.run.recipe_file import recipe_of_text
from tasks.errors import DataError
from tasks.ports.rows.prepared import divided_rows
from tasks.ports.rows.table_files import write_table
from tasks.recipe.slices import RowsSlice

ROWS = 120
DRAWN = random.Random(7)
WORDS = "river stone cloud apple green walked quickly seven mountains singing children Berlin Paris London".split()
Table = dict[str, list[Any]]


def drawn(count: int) -> str:
    return " ".join(DRAWN.choice(WORDS) for _ in range(count))


AT = range(ROWS)
ASKED = [f"what is {drawn(5)} {row}?" for row in AT]
PASSAGES = [f"{drawn(30)} {row}" for row in AT]
OPTIONS = [[f"{word} {drawn(2)}" for word in DRAWN.sample(WORDS, 4)] for _ in AT]
CHOICES: Table = {"question": ASKED, "choices": OPTIONS}
SENTENCES = [[*drawn(6).split(), f"n{row}"] for row in AT]
TAGS = [["B-PER", "I-PER", *"OOOOO"] if row % 2 else [*"OOOOOO", "B-LOC"] for row in AT]
FOUND = [" ".join(passage.split()[3:6]) for passage in PASSAGES]
PLACES = [passage.index(found) for passage, found in zip(PASSAGES, FOUND, strict=True)]
QUESTIONS: Table = {"question": ASKED, "context": PASSAGES}
RANKED: Table = {"query": [ASKED[row // 4] for row in AT], "passage": PASSAGES}
TEXTS: Table = {"text": PASSAGES}
SETS = [[["art"], ["news", "sport"], [], ["sport", "art"]][row % 4] for row in AT]


def said(folder: Path, table: Table, ending: str) -> str:
    """Return what init says of a table, a line each, or why it is refused; and then what a run would say."""
    path = folder / f"t{ending}"
    if ending == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([[*table], *zip(*table.values(), strict=True)])
    else:
        write_table(path, table)
    try:
        starter = starter_recipe(str(path), folder / "mine.yaml")
        recipe = recipe_of_text(starter.text, path)
        divided_rows(path, RowsSlice(**dict(recipe.data), task=recipe.spec))
    except DataError as error:
        assert "\n" not in str(error)
        return f"refused: {error}"
    return "\n".join([f"kind: {recipe.spec.kind}", *starter.notes])


def each(cells: Any) -> list[Any]:
    """Return the cells of all rows, by a function of the row."""
    return [cells(row) for row in AT]


TOLD: dict[str, tuple[Table, str, str]] = {
    "places from 1": (
        {**CHOICES, "label": each(lambda row: 1 + row % 4)},
        ".parquet",
        "refused: t.parquet: choices holds options, and label does not name them; row 4: the label 4 is none of 0 to 3",
    ),
    "places from 1, the last never": (
        {**CHOICES, "label": each(lambda row: 1 + row % 3)},
        ".parquet",
        "no place in column 'label' is 0; if yours are counted from 1, subtract 1, or write letters",
    ),
    "a fifth letter": (
        {**CHOICES, "answer": each(lambda row: "ABCDE"[row % 5])},
        ".parquet",
        "row 5: the label 'E' names none of 4 options",
    ),
    "letters in brackets": (
        {**CHOICES, "label": each(lambda row: f"({'ABCD'[row % 4]})")},
        ".parquet",
        "kind: choices",
    ),
    "letters with points": ({**CHOICES, "label": each(lambda row: f"{'abcd'[row % 4]}.")}, ".parquet", "kind: choices"),
    "options in another case": (
        {**CHOICES, "answer": each(lambda row: OPTIONS[row][row % 4].upper())},
        ".parquet",
        "kind: choices",
    ),
    "printed options": (
        {"question": ASKED, "choices": each(lambda row: json.dumps(OPTIONS[row])), "label": each(lambda row: row % 4)},
        ".csv",
        "refused: t.csv: the column 'choices' has lists that are written as texts; save the table as .jsonl or .parq",
    ),
    "an option that is missing": (
        {**CHOICES, "choices": [[*OPTIONS[0][:3], None], *OPTIONS[1:]], "label": each(lambda row: row % 4)},
        ".parquet",
        "left out (data.faulty_rows: drop): t.parquet, row 1: text 4 of the column 'choices' is empty",
    ),
    "options by letter": (
        {
            "question": ASKED,
            "options": each(lambda row: dict(zip("ABCD", OPTIONS[row], strict=True))),
            "label": ["A"] * ROWS,
        },
        ".parquet",
        "refused: t.parquet: the column 'options' holds objects of options; write the texts of each row as a list",
    ),
    "tags in a text": (
        {"tokens": SENTENCES, "tags": each(lambda row: " ".join(TAGS[row]))},
        ".parquet",
        "kind: tokens",
    ),
    "words and tags in texts": (
        {"sentence": each(lambda row: " ".join(SENTENCES[row])), "tags": each(lambda row: " ".join(TAGS[row]))},
        ".csv",
        "kind: tokens",
    ),
    "a tag too many": (
        {"tokens": SENTENCES, "tags": [[*TAGS[0], "O"], *TAGS[1:]]},
        ".parquet",
        "refused: t.parquet, row 1: 7 words in column 'tokens' have 8 tags in column 'tags'; give each word one tag",
    ),
    "printed tags": (
        {"tokens": each(lambda row: repr(SENTENCES[row])), "tags": each(lambda row: repr(TAGS[row]))},
        ".csv",
        "refused: t.csv: the column 'tokens' has lists that are written as texts; save the table as .jsonl or .parquet",
    ),
    "a word a row": (
        {"word": [word for one in SENTENCES for word in one], "tag": [tag for one in TAGS for tag in one]},
        ".csv",
        "refused: t.csv has a word and its tag in each row; give each sentence a row, with a list of its words",
    ),
    "a zero for O": (
        {"tokens": SENTENCES, "tags": each(lambda row: ["0" if tag == "O" else tag for tag in TAGS[row]])},
        ".parquet",
        "the tag '0' in column 'tags' is neither O nor a letter and a type",
    ),
    "parts of speech": (
        {"tokens": SENTENCES, "tags": [["NN"] * 7] * ROWS},
        ".parquet",
        "write the words of an entity so, and O for others",
    ),
    "answers a character off": (
        {**QUESTIONS, "answers": each(lambda row: {"text": [FOUND[row]], "answer_start": [PLACES[row] + 1]})},
        ".parquet",
        "refused: t.parquet, row 1: the answer",
    ),
    "answers in another case": (
        {**QUESTIONS, "answers": each(lambda row: {"text": [FOUND[row].upper()], "answer_start": [PLACES[row]]})},
        ".parquet",
        "count characters from 0, not bytes or words",
    ),
    "questions without any answer": (
        {**QUESTIONS, "answers": [{"text": [], "answer_start": []}] * ROWS},
        ".parquet",
        "refused: the train split has no question with an answer",
    ),
    "answers that no passage has": ({**QUESTIONS, "answer": ["yes"] * ROWS}, ".parquet", "not read: answer"),
    "grades with fractions": (
        {**RANKED, "score": each(lambda row: row / ROWS)},
        ".parquet",
        "to rank the texts of each query (--task ranking), grade them by whole numbers from 0 to 10",
    ),
    "grades in words": (
        {**RANKED, "label": each(lambda row: "no" if row % 4 else "relevant")},
        ".parquet",
        "columns that are not read: query",
    ),
    "scores as texts": (
        {"sentence1": ASKED, "sentence2": PASSAGES, "score": each(lambda row: f"{row / ROWS:.2f}")},
        ".parquet",
        "refused: t.parquet: the column 'score' has numbers that are stored as texts; store numbers",
    ),
    "a score that is none": (
        {"sentence1": ASKED, "sentence2": PASSAGES, "score": [*each(lambda row: row / ROWS)[1:], float("nan")]},
        ".parquet",
        "refused: t.parquet, row 120: the column 'score' has nan; give a number, or leave it empty",
    ),
    "one score": (
        {"sentence1": ASKED, "sentence2": PASSAGES, "score": [1.0] * ROWS},
        ".parquet",
        "refused: t.parquet: the column 'score' has 1.0 in every row, which teaches nothing; correct it, or learn from",
    ),
    "texts in lists": (
        {"sentence1": each(lambda row: [ASKED[row]]), "sentence2": PASSAGES, "score": each(lambda row: row / ROWS)},
        ".parquet",
        "columns that are not read: sentence1",
    ),
    "no label anywhere": ({**TEXTS, "labels": [[]] * ROWS}, ".parquet", "the column 'labels' has [] in every row"),
    "one label each": (
        {**TEXTS, "labels": each(lambda row: ["art" if row % 2 else "news"])},
        ".parquet",
        "kind: multi-la",
    ),
    "a bit for each label": (
        {**TEXTS, "labels": each(lambda row: [[0, 1, 1], [1, 0, 0], [0, 0, 0]][row % 3])},
        ".parquet",
        "the lists in column 'labels' have a 0 or a 1 for each of 3 labels, which have no names there; give the names",
    ),
    "printed arrays": (
        {**TEXTS, "labels": each(lambda row: ["[0 1]", "[1 0]", "[0 0]"][row % 3])},
        ".csv",
        "refused: t.csv: the column 'labels' has sets or arrays as a program printed them, such as [0 1]; write lists",
    ),
    "printed sets": (
        {**TEXTS, "labels": each(lambda row: str({*SETS[row][:1]}))},
        ".csv",
        "refused: t.csv: the column 'labels' has sets or arrays as a program printed them, such as {'art'}; write lis",
    ),
    "capital letters": (
        {**TEXTS, "labels": each(lambda row: [["Art"], ["art", "news"], ["news"]][row % 3])},
        ".parquet",
        "the labels Art, art differ by capital letters alone, and are different labels; write them alike if they are",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_table_is_read_as_it_is_meant_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    table, ending, sentence = TOLD[name]
    assert sentence in said(tmp_path, table, ending)


def test_columns_that_are_read_and_ids_are_no_news(tmp_path: Path) -> None:
    whole: Table = {"id": list(AT), **CHOICES, "label": each(lambda row: row % 4), "empty": [""] * ROWS}
    assert "not read" not in said(tmp_path, whole, ".parquet")
    assert "not read: author" in said(tmp_path, {**whole, "author": ASKED}, ".parquet")


def test_columns_of_a_template_are_read(tmp_path: Path) -> None:
    """A question and its several answers become one text, of which the choice of columns knows nothing."""
    table: Table = {
        "paragraph": [PASSAGES[row // 6] for row in AT],
        "question": [ASKED[row // 3] for row in AT],
        "answer": each(lambda row: f"{drawn(3)} {row}"),
        "label": each(lambda row: row % 2),
    }
    found = said(tmp_path, table, ".parquet")
    assert "they are judged together" in found and "not read" not in found
