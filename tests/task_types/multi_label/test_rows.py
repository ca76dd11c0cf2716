"""Tables of several labels a row: every form is read alike, and a row that is none of them is one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from flows.recipes.starter import Wishes, starter_recipe
from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.prepared import divided_rows
from tasks.ports.rows.tables import read_columns
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, TableRows
from tasks.task_types.multi_label.rows import READER, bits_of, names_of_labels, rarest_labels
from tasks.task_types.readers import READERS
from tests.tiny import WORDS

NAMES = ["art", "news", "sport"]
SETS = [["art"], ["news", "sport"], [], ["sport"]]
"""Labels of four rows, and below in every form that tables have."""
FORMS: dict[str, list[Any]] = {
    "lists": SETS,
    "numbers": [[0], [1, 2], [], [2]],
    "bars": ["art", "news|sport", "", "sport"],
    "semicolons": ["art", "sport; news", "", "sport"],
    "commas": ["art", "news, sport", "", "sport"],
    "printed lists": ["['art']", "['news', 'sport']", "[]", '["sport"]'],
    "printed arrays": ["['art']", "['news' 'sport']", "[]", "['sport']"],
    "columns": [
        {"art": 1, "news": 0, "sport": 0},
        {"art": "0", "news": "1", "sport": True},
        {"art": 0, "news": 0, "sport": 0},
        {"art": False, "news": 0.0, "sport": 1},
    ],
}


def given(*labels: Any, declared: tuple[str, ...] = ()) -> TableRows:
    return TableRows("rows.csv", {"text": "body", "label": "topics"}, {"label": labels}, declared)


def write(path: Path, **columns: list[Any]) -> Path:
    count = len(next(iter(columns.values())))
    texts = [f"{WORDS[row % 7]} {WORDS[row % 11]} number {row} of them" for row in range(count)]
    pq.write_table(pa.table({"text": texts, **columns}), path)
    return path


def recipe_of(path: Path, tmp_path: Path, **wishes: Any) -> tuple[Recipe, str]:
    made = starter_recipe(str(path), tmp_path / "mine.yaml", Wishes(**wishes))
    return Recipe.model_validate(YAML(typ="safe").load(made.text)), "\n".join(made.notes)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_sets(form: str) -> None:
    assert READER.labels(given(*FORMS[form]), NAMES) == [1, 6, 0, 4]
    if form != "numbers":
        assert READER.class_names(given(*FORMS[form])) == NAMES


def test_a_missing_list_is_unlabelled_and_an_empty_text_is_not() -> None:
    """A text without any label is an example, too: left out, half of a table of entities would be gone."""
    assert READER.labels(given(["art"], None), NAMES) == [1, None]
    assert READER.labels(given("art", ""), NAMES) == [1, 0]
    assert READER.labels(given("art", None), NAMES) == [1, None], "as in a file of JSON"
    assert READER.labels(replace(given("art", None), is_delimited=True), NAMES) == [1, 0], "as in a csv"
    assert READER.labels(given({"a": 1, "b": 0}, {"a": None, "b": ""}), ["a", "b"]) == [1, None]


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        (3, "row 2: the label 3 is no list of labels; give a list, or a text such as 'news|sport', or set kind: class"),
        (["art", None], "row 2: the list of labels contains None; give names, or whole numbers from 0 on"),
        (["art", ["news"]], r"row 2: the list of labels contains \['news'\]; give names"),
        ([0.5], "row 2: the list of labels contains 0.5; give names"),
        ([""], "row 2: the list of labels contains ''; give names"),
        (["sprot"], "row 2: the label 'sprot' is not one of art, news, sport; did you mean 'sport'"),
        ([7], "row 2: the label 7 is not one of art, news, sport; correct it or name it in task.labels"),
        ("art||news", r"row 2: the labels 'art\|\|news' have nothing before or after a separator; remove it"),
        ("['art', 'news'", "row 2: the text \"\\['art', 'news'\" begins like a list and is none; close it, and quote"),
        ({"art": 2, "news": 0}, "row 2: the column 'art' is 2 and must be 0 or 1; leave none or all of a row's"),
        ({"art": ["x"], "news": 0}, r"row 2: the column 'art' is \['x'\] and must be 0 or 1"),
        ({"art": 1, "news": None}, "row 2: the column 'news' is empty and must be 0 or 1"),
        ({"art": 0, "music": 1}, "row 2: the label 'music' is not one of art, news, sport"),
    ],
)
def test_a_hostile_row_is_one_sentence(cell: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=f"^rows.csv, {sentence}"):
        READER.labels(given(["art"], cell), NAMES)


def test_spaces_around_a_label_are_none_of_its_name() -> None:
    """Lists are often made of a text that was cut at its commas."""
    rows = given(["art", " news"], ["news ", "sport"])
    names = names_of_labels(rows)
    assert names == NAMES and READER.labels(rows, names) == [3, 6]


@pytest.mark.parametrize("labels", [[["art"], []], [[f"label {number}"] for number in range(53)]])
def test_too_few_and_too_many_labels_are_refused(labels: list[Any]) -> None:
    with pytest.raises(DataError, match="different labels in column 'topics'; 2 to 52 are possible: join rare ones"):
        READER.class_names(given(*labels))


def test_every_split_has_every_label_though_one_is_rare(tmp_path: Path) -> None:
    """Rows drawn at random would leave the rare label out of the small splits, and its F1 would be meaningless."""
    sets = [["sport"], ["news", "sport"], ["sport"], []] * 50
    sets = [[*one, "art"] if row % 29 == 0 else one for row, one in enumerate(sets)]
    path = write(tmp_path / "t.parquet", topics=sets)
    knobs = RowsSlice(task=TaskSpec(name="mine", kind="multi-label", label="topics"), selection_rows=15, purge=False)
    splits, names, facts = divided_rows(path, knobs)
    assert names == NAMES and rarest_labels([7, 4], names) == [0, 2]
    for split in splits.values():
        assert {bit for label in split.labels for bit in bits_of(label)} == {0, 1, 2}
    assert facts.labels is not None and list(facts.labels) == NAMES


def test_a_label_with_too_few_rows_is_left_out_and_its_rows_stay(tmp_path: Path) -> None:
    sets = [["sport"], ["news", "sport"]] * 40 + [["art", "news"]]
    path = write(tmp_path / "t.parquet", topics=sets)
    spec = TaskSpec(name="mine", kind="multi-label", label="topics")
    with pytest.raises(DataError, match=r"too few different rows of class 'art' \(1 row\).*data.faulty_rows: drop"):
        divided_rows(path, RowsSlice(task=spec, selection_rows=8))
    splits, names, _ = divided_rows(path, RowsSlice(task=spec, selection_rows=8, faulty_rows="drop", purge=False))
    assert names == ["news", "sport"] and sum(map(len, splits.values())) == 81


def test_columns_that_are_named_together_must_all_be_there(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", art=[1, 0], news=[0, 1])
    spec = TaskSpec(name="mine", kind="multi-label", label="art, news")
    read = read_columns(path, spec, READER.columns, None)
    assert READER.labels(given(*read.rows.labels), ["art", "news"]) == [1, 2]
    with pytest.raises(DataError, match="has no label column 'sport'"):
        read_columns(path, spec.model_copy(update={"label": "art, sport"}), READER.columns, None)
    with pytest.raises(DataError, match="has no label column 'art, news'"):
        read_columns(path, spec, READERS["classification"].columns, None)


def test_names_that_a_file_declares_for_the_elements_of_its_lists(tmp_path: Path) -> None:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.List(datasets.ClassLabel(names=["no", "yes"]))}
    )
    rows = datasets.Dataset.from_dict({"text": ["a b", "c d"], "label": [[1], [0, 1]]}, features=features)
    rows.to_parquet(tmp_path / "t.parquet")
    read = read_columns(tmp_path / "t.parquet", TaskSpec(name="mine", kind="multi-label"), READER.columns, None)
    assert read.classes == ("no", "yes")
    assert recipe_of(tmp_path / "t.parquet", tmp_path)[0].spec.kind == "multi-label"


def test_a_judging_set_has_labels_by_name_or_by_a_mapping() -> None:
    mapped = JudgingLabels("data.judge.other", classes={"football": ("sport",)})
    assert READER.judging_labels(given(["football", "art"], []), mapped, NAMES) == ([5, 0], None)
    several = JudgingLabels("data.judge.other", classes={"paper": ("news", "art")})
    with pytest.raises(DataError, match="data.judge.other.classes maps 'paper' to several labels"):
        READER.judging_labels(given(["paper"]), several, NAMES)
    with pytest.raises(DataError, match="data.judge.other: its labels are numbers"):
        READER.judging_labels(given([1]), JudgingLabels("data.judge.other"), NAMES)


@pytest.mark.parametrize("cells", [[[0], [1], [0, 1]], ["0", "1", "0|1"]])
def test_numbers_in_a_judging_set_mean_what_its_section_says_in_lists_and_in_texts(cells: list[Any]) -> None:
    """The numbers of a csv are texts, and were read as the task's own."""
    place = "data.judge.other"
    meant = JudgingLabels(place, meanings=("news", "art"))
    assert READER.judging_labels(given(*cells), meant, NAMES) == ([2, 1, 3], None)
    assert READER.judging_labels(given(*cells), JudgingLabels(place, numbered=True), NAMES) == ([1, 2, 3], None)
    with pytest.raises(DataError, match=r"its labels are numbers \(0\), and their meaning is unknown"):
        READER.judging_labels(given(*cells), JudgingLabels(place), NAMES)


def test_numbers_are_those_of_the_names_that_a_file_declares_and_no_places_beside_names_of_digits() -> None:
    assert READER.labels(given([0], [2, 1], declared=("sport", "art", "news")), NAMES) == [4, 3]
    assert READER.labels(given("1", "1|3"), ["1", "2", "3"]) == [1, 5]
    with pytest.raises(DataError, match="the label '0' is not one of 1, 2, 3"):
        READER.labels(given("1", "0|3"), ["1", "2", "3"])


# --- limbeck init -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "label", "why"),
    [
        ({"topics": SETS * 9}, "topics", "3 labels, 1.0 a row on average, none in 25% of the rows; lists"),
        ({"topics": ["art", "news|sport", "none", "sport|art"] * 9}, "topics", "texts with '|' between labels"),
        (
            {"art": [1, 0, 0, 0] * 9, "news": [0, 1, 0, 0] * 9, "sport": [0, 1, 0, 1] * 9},
            "art, news, sport",
            "several columns of 0 and 1",
        ),
    ],
)
def test_init_recognises_several_labels_and_says_why(
    columns: dict[str, list[Any]], label: str, why: str, tmp_path: Path
) -> None:
    found, notes = recipe_of(write(tmp_path / "t.parquet", **columns), tmp_path)
    assert (found.spec.kind, found.spec.label, found.spec.headline) == ("multi-label", label, "micro_f1")
    assert why in notes


@pytest.mark.parametrize(
    "columns",
    [
        {"label": ["books, films", "garden", "books, films", "tools"] * 9},
        {"flag": [0, 1] * 18, "other": [1, 0] * 18},
        {"label": ["a", "b"] * 18, "x": [0, 1] * 18, "y": [1, 0] * 18, "z": [0, 0, 1, 1] * 9},
    ],
)
def test_one_label_a_row_stays_classification(columns: dict[str, list[Any]], tmp_path: Path) -> None:
    """Classes whose names have a comma, two flags, and flags beside a usual label are no sets of labels."""
    assert recipe_of(write(tmp_path / "t.parquet", **columns), tmp_path)[0].spec.kind == "classification"


def test_tags_of_words_are_no_sets_of_labels(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {"tokens": [["a", "b"], ["c"]] * 9, "labels": [[0, 1], [1]] * 9}
    assert READER.guess(columns, ColumnChoice("text", None, "labels")) is None
    alone = READER.guess({"labels": columns["labels"]}, ColumnChoice("text", None, "labels"))
    assert alone is not None and alone.labels == ("0", "1")
    assert recipe_of(write(tmp_path / "t.parquet", **columns), tmp_path)[0].spec.kind == "tokens"


def test_the_program_of_the_recipes_page_makes_labels_of_entities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As BTC and WNUT17 have them: numbers of tags, whose names are stated by the file."""
    page = (Path(__file__).parents[3] / "deployments/recipes/README.md").read_text()
    program = next(part.split("```")[0] for part in page.split("```python\n")[1:] if "ner_tags" in part)
    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER", "I-PER", "B-LOC"]))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags})
    rows = [
        (["Ada", "Byron", "of", f"London{number}"], [1, 2, 0, 3 * (number % 2)] if number % 4 else [0, 0, 0, 0])
        for number in range(81, 1, -1)
    ]
    (tmp_path / "btc").mkdir()
    (tmp_path / "btc-types").mkdir()
    for split, some in (("train", rows[:60]), ("validation", rows[60:])):
        columns = {"tokens": [words for words, _ in some], "ner_tags": [numbers for _, numbers in some]}
        datasets.Dataset.from_dict(columns, features=features).to_parquet(tmp_path / f"btc/{split}.parquet")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    exec(compile(program.replace("FOLDER", str(tmp_path / "btc")), "page", "exec"), {})
    made = pq.read_table(tmp_path / "btc-types/train.parquet").to_pylist()
    assert made[0] == {"text": "Ada Byron of London81", "labels": ["LOC", "PER"]}
    assert made[1]["labels"] == [] and made[3]["labels"] == ["PER"]
    spec = TaskSpec(name="types", kind="multi-label", label="labels")
    splits, names, _ = divided_rows(tmp_path / "btc-types", RowsSlice(task=spec, selection_rows=10, purge=False))
    assert names == ["LOC", "PER"] and len(splits["validation"].labels) == 20
