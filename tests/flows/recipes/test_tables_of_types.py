"""Tables of the task types as people have them, through ``limbeck init``: which type is guessed, by which columns."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.recipes.starter import Wishes, starter_recipe
from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.prepared import divided_rows
from tasks.ports.rows.table_files import write_table
from tasks.ports.rows.tables import read_table, split_files
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice

COUNT = 240
SYLLABLES = "ba de fi ko lu ma ne po ru si".split()
DRAW = random.Random(0)


def drawn(words: int) -> str:
    return " ".join("".join(DRAW.choices(SYLLABLES, k=3)) for _ in range(words))


PASSAGES = [drawn(12) for _ in range(COUNT)]
QUESTIONS = [f"what is {drawn(4)} n{number}?" for number in range(COUNT)]
FIRST_WORDS = [passage.split()[0] for passage in PASSAGES]


def started(folder: Path, columns: dict[str, list[Any]], **wishes: Any) -> tuple[Recipe, str]:
    """Return the recipe of a table, and the notes."""
    write_table(folder / "train.parquet", columns)
    made = starter_recipe(str(folder / "train.parquet"), folder / "mine.yaml", Wishes(**wishes))
    return Recipe.model_validate(YAML(typ="safe").load(made.text)), "\n".join(made.notes)


# --- queries and their passages ---------------------------------------------------------------------------------------


def test_yes_and_no_questions_are_classes_and_no_search(tmp_path: Path) -> None:
    """BoolQ was taken for search: its 0 is the answer no, and each question has one passage."""
    table = {"question": QUESTIONS, "passage": PASSAGES, "label": [0, 1, 1] * 80}
    assert started(tmp_path, table)[0].spec.kind == "classification"
    searched = {"question": QUESTIONS[:120] * 2, "passage": PASSAGES, "label": [1] * 120 + [0] * 120}
    assert started(tmp_path, searched, task="retrieval")[0].spec.kind == "retrieval"
    asked = [*QUESTIONS[:200], *QUESTIONS[:40]]
    marked = {"anchor": asked, "positive": PASSAGES, "label": [1] * 200 + [0] * 40}
    assert started(tmp_path, marked)[0].spec.kind == "retrieval", "each query has a passage that answers it"


def test_pairs_without_a_label_are_searched(tmp_path: Path) -> None:
    """The usual tables of embedders have no label, and were refused for that."""
    recipe, notes = started(tmp_path, {"anchor": QUESTIONS, "positive": PASSAGES, "negative": PASSAGES[::-1]})
    assert (recipe.spec.kind, recipe.spec.text, recipe.spec.pair) == ("retrieval", "anchor", "positive")
    assert "negative is not read" in notes
    facts = divided_rows(tmp_path / "train.parquet", RowsSlice(task=recipe.spec, selection_rows=24))[2]
    assert facts.rows["train"] > 0


def test_columns_of_any_name_are_searched_where_the_type_is_asked_for(tmp_path: Path) -> None:
    table = {"a": QUESTIONS, "b": PASSAGES, "source": ["x", "y"] * 120}
    recipe, _ = started(tmp_path, table, task="retrieval", text="a", pair="b")
    assert (recipe.spec.kind, recipe.spec.text, recipe.spec.pair, recipe.spec.label) == ("retrieval", "a", "b", "label")
    _, notes = started(tmp_path, table, task="embedding", text="a", pair="b")
    assert "pairs of the validation split have no score, and judge nothing" in notes
    with pytest.raises(DataError, match="need no label, by --task retrieval --text COLUMN --pair COLUMN"):
        started(tmp_path, {"a": QUESTIONS, "b": PASSAGES})


def test_rows_of_one_passage_are_divided_together_where_they_cannot_be_one_by_one(tmp_path: Path) -> None:
    """The recipe of questions with their paragraphs was one that no run accepts."""
    asked = [f"{question} {word}" for question in QUESTIONS for word in ("now", "then", "there")]
    table = {"question": asked, "context": [PASSAGES[number // 5] for number in range(3 * COUNT)]}
    recipe, notes = started(tmp_path, table)
    assert recipe.data.group == "context" and "group: context, because its texts recur" in notes
    divided, _, facts = divided_rows(tmp_path / "train.parquet", RowsSlice(**dict(recipe.data), task=recipe.spec))
    passages = {split: {*(rows.pairs or ())} for split, rows in divided.items()}
    assert facts.leaked["validation"] == 0
    assert not passages["train"] & (passages["validation"] | passages["selection"] | passages["holdout"])


def test_no_group_is_named_where_both_texts_recur(tmp_path: Path) -> None:
    """Divided by one of them, texts of the other would be learned and judged by."""
    table = {
        "question": [QUESTIONS[number // 4] for number in range(COUNT)],
        "context": [PASSAGES[number % 60] for number in range(COUNT)],
    }
    recipe, notes = started(tmp_path, table)
    assert not recipe.data.group and "to be corrected before a run" in notes


def test_scored_pairs_say_that_an_embedder_may_learn_from_them(tmp_path: Path) -> None:
    """STS-B and STS 2014 call the score of similarity a label or a score: nothing tells it from another number."""
    table = {"sentence1": PASSAGES, "sentence2": PASSAGES[::-1], "score": [number % 50 / 10 for number in range(COUNT)]}
    recipe, notes = started(tmp_path, table)
    assert recipe.spec.kind == "regression" and "which can search, set kind: embedding" in notes
    assert started(tmp_path, table, task="embedding")[0].spec.kind == "embedding"


def test_reviews_with_several_aspects_are_divided_by_review(tmp_path: Path) -> None:
    """An aspect is a word of its review, so that no row stands alone, and none could be held back."""
    reviews = [PASSAGES[number // 2] for number in range(COUNT)]
    aspects = [review.split()[number % 2] for number, review in enumerate(reviews)]
    table = {"review": reviews, "aspect": aspects, "label": ["good", "bad", "bad"] * 80}
    recipe, notes = started(tmp_path, table, text="review", pair="aspect")
    assert recipe.data.group == "review" and "to be corrected" not in notes


# --- answers in passages, options, labels -----------------------------------------------------------------------------


@pytest.mark.parametrize("several", [True, False])
def test_answers_and_their_places_in_two_columns_are_spans(several: bool, tmp_path: Path) -> None:
    """Lists of answers and of places were taken for words and tags, and places of single answers were not read."""
    twice = [f"{passage} {word}" for passage, word in zip(PASSAGES, FIRST_WORDS, strict=True)]
    places = [len(passage) + 1 for passage in PASSAGES]
    answers, starts = ([[one] for one in column] if several else column for column in (FIRST_WORDS, places))
    table = {"question": QUESTIONS, "context": twice, "answer_text": answers, "answer_start": starts}
    recipe, _ = started(tmp_path, table)
    assert (recipe.spec.kind, recipe.spec.label) == ("spans", "answer_text, answer_start")
    rows = divided_rows(tmp_path / "train.parquet", RowsSlice(**dict(recipe.data), task=recipe.spec))[0]["train"]
    assert all(int(str(label).split()[0]) > 60 for label in rows.labels), "the second place, not the first one"


def test_places_that_are_wrong_are_not_read_and_it_is_said(tmp_path: Path) -> None:
    table = {"question": QUESTIONS, "context": PASSAGES, "answer": FIRST_WORDS, "answer_start": [1] * COUNT}
    recipe, notes = started(tmp_path, table)
    assert (recipe.spec.kind, recipe.spec.label) == ("spans", "answer")
    assert "answer_start does not say where, and is not read" in notes


# --- graded texts of queries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "text", "grade", "beside"),
    [
        ("query", "passage", "label", "bm25_score"),
        ("query", "text", "label", "title"),
        ("query", "doc", "rel", ""),
        ("search_term", "content", "relevance", ""),
    ],
)
def test_graded_texts_are_ranked_whatever_their_columns_are_called(
    query: str, text: str, grade: str, beside: str, tmp_path: Path
) -> None:
    """A score of another engine ended the search for grades, a title was ranked in place of its text, and texts of
    other names were classified without their query."""
    table: dict[str, list[Any]] = {query: [one for one in QUESTIONS[:60] for _ in range(4)]}
    others = {"title": [drawn(2) for _ in PASSAGES], "bm25_score": [number / 7 for number in range(COUNT)]}
    table |= {beside: others[beside]} if beside else {}
    table |= {text: PASSAGES, grade: [1, 0, 0, 0] * 60}
    recipe, _ = started(tmp_path, table)
    assert (recipe.spec.kind, recipe.spec.text, recipe.spec.pair, recipe.spec.label) == ("ranking", query, text, grade)


def test_lists_of_graded_texts_are_ranked(tmp_path: Path) -> None:
    """They were taken for words and their tags, and no option of init made the right recipe."""
    lists = [PASSAGES[start : start + 4] for start in range(0, COUNT, 4)]
    table = {"query": QUESTIONS[:60], "passages": lists, "labels": [[0, 2, 0, 1]] * 60}
    recipe, notes = started(tmp_path, table)
    assert (recipe.spec.kind, recipe.spec.pair, recipe.spec.label) == ("ranking", "{passages[]}", "labels")
    assert "query has 4.0 texts on average, which labels grades" in notes and "to be corrected" not in notes
    divided, _, _ = divided_rows(tmp_path / "train.parquet", RowsSlice(task=recipe.spec, purge=False))
    assert divided["train"].labels[0] == "0 2 0 1"


@pytest.mark.parametrize("form", ["an object of lists", "a list of objects"])
def test_graded_texts_within_a_column_are_ranked(form: str, tmp_path: Path) -> None:
    """As MS MARCO has them, beside their addresses, and as files of rerankers do: nothing of them was read."""
    lists = [PASSAGES[start : start + 4] for start in range(0, COUNT, 4)]
    grades = [0, 1, 0, 0]
    urls = ["http://a", "http://b", "http://c", "http://d"]
    found: list[Any] = [{"is_selected": grades, "passage_text": texts, "url": urls} for texts in lists]
    if form == "a list of objects":
        found = [[{"text": text, "label": grade} for text, grade in zip(texts, grades, strict=True)] for texts in lists]
    table = {"query": QUESTIONS[:60], "found": found, "answers": [[text.split()[0]] for text in PASSAGES[:60]]}
    recipe, notes = started(tmp_path, table)
    text, label = ("text", "label") if form == "a list of objects" else ("passage_text", "is_selected")
    assert (recipe.spec.kind, recipe.spec.pair, recipe.spec.label) == (
        "ranking",
        f"{{found.{text}[]}}",
        f"found.{label}",
    )
    assert f"query has 4.0 texts on average, which found.{label} grades" in notes
    divided, _, _ = divided_rows(tmp_path / "train.parquet", RowsSlice(task=recipe.spec, purge=False))
    assert divided["train"].labels[0] == "0 1 0 0" and divided["train"].pairs is not None


# --- several labels ---------------------------------------------------------------------------------------------------


def test_columns_of_0_and_1_with_a_point_are_several_labels(tmp_path: Path) -> None:
    """As pandas writes them after a gap: the first of them became a class, and the others were not read."""
    flags = {name: [float((row >> place) & 1) for row in range(COUNT)] for place, name in enumerate(("a", "b", "c"))}
    recipe, _ = started(tmp_path, {"text": PASSAGES, **flags})
    assert (recipe.spec.kind, recipe.spec.labels) == ("multi-label", ("a", "b", "c"))


def test_one_class_in_several_columns_and_too_many_labels_have_a_way_out(tmp_path: Path) -> None:
    flags = {name: [int(row % 3 == place) for row in range(COUNT)] for place, name in enumerate(("a", "b", "c"))}
    with pytest.raises(DataError, match="exactly one of the columns a, b, c set.*--task multi-label"):
        started(tmp_path, {"text": PASSAGES, **flags})
    assert started(tmp_path, {"text": PASSAGES, **flags}, task="multi-label")[0].spec.kind == "multi-label"
    lists = [[f"l{row % 90}", f"l{row % 7}"] for row in range(COUNT)]
    with pytest.raises(DataError, match="the lists of 'labels' have 90 different texts, and 52 different labels are"):
        started(tmp_path, {"text": PASSAGES, "labels": lists})


def test_rows_without_a_label_are_counted_in_a_csv_too(tmp_path: Path) -> None:
    """Their cells are empty, and a recipe said that none had no label."""
    cells = ["a|b", "", "b|c", "a", "c|a"] * 24
    lines = [f"{passage},{cell}" for passage, cell in zip(PASSAGES, cells, strict=False)]
    (tmp_path / "a.csv").write_text("\n".join(["text,labels", *lines]) + "\n")
    made = starter_recipe(str(tmp_path / "a.csv"), tmp_path / "a.yaml", Wishes())
    assert "3 labels, 1.4 a row on average, none in 20% of the rows" in made.text


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("option1", "option2"), ("answerA", "answerB", "answerC")])
def test_places_that_are_counted_from_one_are_refused_with_the_way_out(names: tuple[str, ...], tmp_path: Path) -> None:
    """Winogrande and Social IQa became classes of the question, whose options were not read."""
    options = {name: [drawn(3) for _ in range(COUNT)] for name in names}
    table = {"sentence": PASSAGES, **options, "answer": [str(1 + row % len(names)) for row in range(COUNT)]}
    with pytest.raises(DataError, match=rf"answer does not name them; row {len(names)}: .*counted from 0: subtract 1"):
        started(tmp_path, table)


def test_options_in_columns_named_by_letters_are_choices(tmp_path: Path) -> None:
    """A table of that form (MMLU's) was taken for a classification by A, B, C and D."""
    columns = {letter: [drawn(2) for _ in range(COUNT)] for letter in "ABCD"}
    recipe, _ = started(tmp_path, {"question": QUESTIONS, **columns, "answer": [*"ABCD"] * 60})
    assert (recipe.spec.kind, recipe.spec.pair) == ("choices", "{A | B | C | D}")


def test_a_label_of_several_columns_may_be_named(tmp_path: Path) -> None:
    table = {"text": PASSAGES, "toxic": [0, 1, 1] * 80, "obscene": [0, 1] * 120}
    recipe, _ = started(tmp_path, table, label="toxic, obscene")
    assert (recipe.spec.kind, recipe.spec.label) == ("multi-label", "toxic, obscene")
    assert recipe.spec.labels == ("toxic", "obscene")


# --- files ------------------------------------------------------------------------------------------------------------


def test_further_validation_rows_stand_beside_those_of_the_split(tmp_path: Path) -> None:
    table = {"text": PASSAGES, "label": ["a", "b"] * 120}
    for name in ("train", "validation", "validation_elsewhere"):
        write_table(tmp_path / f"{name}.parquet", table)
    assert [path.name for path in split_files(tmp_path, TaskSpec(name="mine"))["validation"]] == ["validation.parquet"]
    made = starter_recipe(str(tmp_path), tmp_path / "mine.yaml")
    assert any("not read: validation_elsewhere.parquet" in note for note in made.notes)
    assert "split: validation_elsewhere" in made.text
    (tmp_path / "validation.parquet").rename(tmp_path / "validation_here.parquet")
    with pytest.raises(DataError, match="keep one of them, name it in task.validation, or name shards"):
        split_files(tmp_path, TaskSpec(name="mine"))
    named = TaskSpec(name="mine", validation="validation_here")
    assert [path.name for path in split_files(tmp_path, named)["validation"]] == ["validation_here.parquet"]


def test_a_pair_that_is_repeated_is_told(tmp_path: Path) -> None:
    """Each copy is ranked behind the other: a teacher that finds every passage has 0.63 instead of 1."""
    notes = started(tmp_path, {"query": [*QUESTIONS, *QUESTIONS[:3]], "passage": [*PASSAGES, *PASSAGES[:3]]})[1]
    assert "3 rows repeat a query with its passage, and are ranked behind one another; remove them" in notes


TAGGED = (
    "-DOCSTART-\t-X-\tO\n\n# id = 1\nAnna\tNNP\tB-PER\nis\tVBZ\tO\n#\t#\tO\n \nin IN O\nNew NNP B-LOC\nYork NNP I-LOC\n"
)


def test_a_file_of_tagged_words_is_read_by_sentence(tmp_path: Path) -> None:
    """The form of CoNLL-2003, in which most tools write entities, could not be read."""
    (tmp_path / "train.conll").write_text(TAGGED)
    table, opened = read_table(tmp_path / "train.conll")
    assert table.to_pylist() == [
        {"tokens": ["Anna", "is", "#"], "tags": ["B-PER", "O", "O"]},
        {"tokens": ["in", "New", "York"], "tags": ["O", "B-LOC", "I-LOC"]},
    ]
    assert opened.said == "UTF-8, one word and its tag a line"
    with gzip.open(tmp_path / "rows.bio.gz", "wt", encoding="utf-16") as file:
        file.write(TAGGED)
    assert read_table(tmp_path / "rows.bio.gz")[0].equals(table)


def test_a_file_of_tagged_words_makes_a_recipe_of_entities(tmp_path: Path) -> None:
    sentences = [
        f"{word}\tB-PER\nsaw\tO\n{passage.split()[1]}\tO\n" for word, passage in zip(FIRST_WORDS, PASSAGES, strict=True)
    ]
    (tmp_path / "mine.conll").write_text("\n".join(sentences))
    made = starter_recipe(str(tmp_path / "mine.conll"), tmp_path / "mine.yaml")
    spec = Recipe.model_validate(YAML(typ="safe").load(made.text)).spec
    assert (spec.kind, spec.text, spec.label) == ("tokens", "tokens", "tags")
    (tmp_path / "mine.conll").rename(tmp_path / "mine.txt")
    with pytest.raises(DataError, match=r"mine\.txt has a word and its tag in each line; call it mine\.conll"):
        starter_recipe(str(tmp_path / "mine.txt"), tmp_path / "other.yaml")


def test_a_word_without_a_tag_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text(f"{TAGGED}\nAnna\n")
    with pytest.raises(
        DataError, match=r"^train\.conll, line 12: 'Anna' is one column; write a word, a tab and its tag"
    ):
        read_table(tmp_path / "train.conll")


def with_marks(folder: Path, name: str, cell: Any) -> Path:
    """Write texts of which each begins with an entity of four characters, in the form of a tool."""
    lines = [cell(f"Anna {passage}.") for passage in PASSAGES]
    body = json.dumps(lines) if name.endswith(".json") else "\n".join(map(json.dumps, lines))
    (folder / name).write_text(body)
    return folder / name


FORMS: dict[str, Any] = {
    "doccano.jsonl": lambda text: {"id": 1, "text": text, "label": [[0, 4, "PER"]]},
    "relations.jsonl": lambda text: {
        "text": text,
        "entities": [{"id": 7, "label": "PER", "start_offset": 0, "end_offset": 4}],
        "relations": [],
    },
    "prodigy.jsonl": lambda text: {"text": text, "spans": [{"start": 0, "end": 4, "label": "PER", "token_end": 0}]},
    "spacy.json": lambda text: [text, {"entities": [[0, 4, "PER"]]}],
}


@pytest.mark.parametrize("name", FORMS)
def test_entities_by_their_characters_are_read_as_tagged_words(name: str, tmp_path: Path) -> None:
    """Tools for annotation write them so; they were refused."""
    source = with_marks(tmp_path, name, FORMS[name])
    made = starter_recipe(str(source), tmp_path / "mine.yaml")
    recipe = Recipe.model_validate(YAML(typ="safe").load(made.text))
    assert (recipe.spec.kind, recipe.spec.text, recipe.spec.label) == ("tokens", "tokens", "tags")
    assert "as tags of words" in made.notes[0]
    splits, names, facts = divided_rows(source, RowsSlice(**dict(recipe.data), task=recipe.spec))
    assert names == ["O", "B-PER", "I-PER"] and "entities of" in facts.read[0]
    row = splits["train"]
    assert row.texts[0].endswith(" .") and row.labels[0] == "1" + " 0" * 13, "signs at the end are words"


def test_entities_in_a_cell_of_a_delimited_file_are_read(tmp_path: Path) -> None:
    rows = [f'"Anna {passage}","[[0, 4, ""PER""]]"' for passage in PASSAGES]
    (tmp_path / "mine.csv").write_text("\n".join(["text,entities", *rows]))
    made = starter_recipe(str(tmp_path / "mine.csv"), tmp_path / "mine.yaml")
    assert Recipe.model_validate(YAML(typ="safe").load(made.text)).spec.kind == "tokens"


def test_the_first_of_two_validation_files_judges_and_the_other_is_named(tmp_path: Path) -> None:
    """MNLI has validation_matched and validation_mismatched; a folder with both was refused."""
    rows = {"premise": PASSAGES, "hypothesis": QUESTIONS, "label": ["yes", "no", "maybe"] * 80}
    for split in ("train", "validation_mismatched", "validation_matched"):
        write_table(tmp_path / f"{split}.parquet", rows)
    made = starter_recipe(str(tmp_path), tmp_path / "mine.yaml")
    spec = Recipe.model_validate(YAML(typ="safe").load(made.text)).spec
    assert (spec.kind, spec.validation) == ("classification", "validation_matched")
    assert "split: validation_mismatched" in made.text
    assert any("not read: validation_mismatched.parquet" in note for note in made.notes)
