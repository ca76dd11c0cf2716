"""The readers of task types: labels are read and refused by the type alone, and a table says which type it fits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from flows.recipes.starter import starter_recipe
from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.code.fingerprint import narrowing, program
from tasks.ports.code.program import Program
from tasks.ports.rows.prepared import divided_rows, prepare_rows
from tasks.ports.rows.row_files import read_facts
from tasks.ports.rows.tables import read_columns
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tasks.task_types.interfaces import JudgingLabels, TableRows
from tasks.task_types.readers import READERS
from tasks.task_types.types import OF_GROUPS, TASK_TYPES, Column
from tests.architecture.sources import ROOT
from tests.stage_tasks import all_specs, changed_stages, edited
from tests.task_types.test_answers import ONE_ANSWER

CLASSES = ["no", "yes"]
NAMES = {
    "classification": CLASSES,
    "regression": None,
    "multi-label": CLASSES,
    "embedding": None,
    "retrieval": None,
}
LAST: dict[str, tuple[Any, Any]] = {
    "classification": ("yes", 1),
    "regression": (3, 3.0),
    "multi-label": (["yes"], 2),
    "embedding": (3, 3.0),
    "retrieval": ("1", 1.0),
}
"""One more legal label of each type, and how it is stored."""
LEGAL: dict[str, list[Any]] = {
    "classification": ["yes", 0, None, "no"],
    "regression": [0.5, "7", None, -1],
    "multi-label": [["yes"], [0, "yes"], None, ["no"]],
    "embedding": [0.5, "7", 0, -1],
    "retrieval": [1, "0", None, 0],
}
STORED: dict[str, list[Any]] = {
    "classification": [1, 0, None, 0],
    "regression": [0.5, 7.0, None, -1.0],
    "multi-label": [2, 3, None, 1],
    "embedding": [0.5, 7.0, 0.0, -1.0],
    "retrieval": [1.0, 0.0, 1.0, 0.0],
}
FLAT: dict[str, list[Any]] = {
    "classification": [1, 0, 2],
    "regression": [1, 0, 2],
    "multi-label": [[1], [0], [2]],
    "embedding": [1, 0, 2],
    "retrieval": [1, 0, 1],
}
ROWS_STAGES = {"prepare-rows", "prepare-transfer", "prepare-judging-set", "pack-rows"}
KNOBS = {"task": {"kind": "classification"}, "task_type": "classification"}


def given(*labels: Any, declared: tuple[str, ...] = ()) -> TableRows:
    texts = [f"text {number}" for number in range(len(labels))]
    return TableRows("rows.csv", {"text": "body", "label": "mood"}, {"text": texts, "label": labels}, declared)


def write(path: Path, labels: list[Any], **more: Any) -> Path:
    texts = [f"sentence number {number} of all" for number in range(len(labels))]
    pq.write_table(pa.table({"text": texts, "label": labels, **more}), path)
    return path


def recipe(**task: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "mine",
            "task": {"name": "mine", **task},
            "students": [{"name": "small", "layers": 2, "start": "teacher"}],
            "teacher": {"already_finetuned": True},
            "gate": {"split": "validation"},
        }
    )


# --- every type -------------------------------------------------------------------------------------------------------


def test_every_task_type_has_a_reader_of_its_columns() -> None:
    assert list(READERS) == list(TASK_TYPES)
    for name, reader in READERS.items():
        assert reader.columns == TASK_TYPES[name].columns


@pytest.mark.parametrize("name", ONE_ANSWER)
def test_labels_are_read_as_they_are_stored(name: str) -> None:
    """A label that is written in another type would be read back as another label."""
    reader = READERS[name]
    labels = reader.labels(given(*LEGAL[name]), NAMES[name])
    assert labels == STORED[name]
    assert pa.array(labels, reader.label_type()).to_pylist() == labels


@pytest.mark.parametrize("name", ONE_ANSWER)
def test_classes_have_names_where_the_type_has_classes(name: str) -> None:
    reader, has_classes = READERS[name], TASK_TYPES[name].has_classes
    assert (reader.class_names(given(*FLAT[name])) is not None) == has_classes
    assert (reader.names_in_config({"id2label": {"0": "LABEL_0"}}) is not None) == has_classes


@pytest.mark.parametrize("name", ONE_ANSWER)
def test_labels_of_a_judging_set_are_the_labels_of_the_task(name: str) -> None:
    labels, merged = READERS[name].judging_labels(
        given(*LEGAL[name][2:], LAST[name][0]), JudgingLabels("here"), NAMES[name]
    )
    assert labels == [*STORED[name][2:], LAST[name][1]] and merged is None


@pytest.mark.parametrize(
    ("name", "labels", "sentence"),
    [
        ("classification", ["yes", "maybe"], "rows.csv, row 2: the label 'maybe' is not one of no, yes; correct it"),
        ("classification", [2], "rows.csv, row 1: the label 2 is not one of no, yes"),
        ("regression", [1, "high"], "rows.csv, row 2: the label 'high' is not a number; correct it"),
        ("regression", ["nan"], "rows.csv, row 1: the label is nan; give a finite number"),
        ("embedding", [1, "high"], "rows.csv, row 2: the score 'high' is not a number; correct it, or leave it empty"),
        ("embedding", ["inf"], "rows.csv, row 1: the score is inf; give a finite number, or leave it empty"),
        ("retrieval", [1, 2], "rows.csv, row 2: the mark 2 is neither 1 \\(the passage answers the query\\) nor 0"),
    ],
)
def test_an_illegal_label_is_one_sentence(name: str, labels: list[Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        READERS[name].labels(given(*labels), NAMES[name])


def test_numbers_are_those_of_the_names_that_a_file_declares_and_no_places_beside_names_of_digits() -> None:
    """A validation file with its classes in another order was read swapped, and a 0 as the class "1"."""
    read = READERS["classification"].labels
    assert read(given(0, 1, None, declared=("good", "bad")), ["bad", "good"]) == [1, 0, None]
    assert read(given(0, 1, declared=("a", "b")), ["bad", "good"]) == [0, 1], "a recipe may name classes otherwise"
    assert read(given(1, 3), ["1", "2", "3"]) == [0, 2]
    assert read(given(True, False), ["True", "False"]) == [0, 1], "a truth value is no number"
    with pytest.raises(DataError, match="the label 0 is not one of 1, 2, 3"):
        read(given(1, 0), ["1", "2", "3"])


# --- classes ----------------------------------------------------------------------------------------------------------


def test_declared_names_win_over_the_labels_that_are_found() -> None:
    names = READERS["classification"].class_names
    assert names(given(1, 0, declared=("bad", "good"))) == ["bad", "good"]
    assert names(given("b", None, -1, "a", "b")) == ["a", "b"], "-1 and nothing are no classes"
    assert names(given(10, 9)) == ["9", "10"], "numbers are sorted as numbers"


@pytest.mark.parametrize("labels", [["a", "a", None], [f"class {number}" for number in range(201)]])
def test_too_few_and_too_many_classes_are_refused(labels: list[Any]) -> None:
    with pytest.raises(DataError, match="different labels in column 'mood'; 2 to 200 are needed, or set kind: "):
        READERS["classification"].class_names(given(*labels))


def test_a_class_that_never_occurs_is_refused_and_a_number_is_not() -> None:
    READERS["regression"].require_labels("selection split", [1.0, 1.0], None)
    READERS["classification"].require_labels("selection split", [], CLASSES)
    with pytest.raises(DataError, match="the selection split has no row labelled no"):
        READERS["classification"].require_labels("selection split", [1, 1], CLASSES)


def test_facts_have_the_shares_of_classes() -> None:
    assert READERS["classification"].label_facts([0, 1, 1, 1], CLASSES) == {
        "labels": CLASSES,
        "label_shares": [0.25, 0.75],
    }
    assert READERS["regression"].label_facts([0.0, 1.5], None) == {}


def test_names_in_a_config_are_in_the_order_of_their_numbers() -> None:
    named = {"id2label": {"10": "k", "9": "j", "0": "a"}}
    assert READERS["classification"].names_in_config(named) == ("a", "j", "k")


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("classification", [0, 1, None] * 40),
        ("regression", [0.5, 2, None] * 40),
        ("multi-label", [["a", "b"], ["b"], None] * 40),
    ],
)
def test_a_table_goes_through_its_reader_into_prepared_rows(name: str, labels: list[Any], tmp_path: Path) -> None:
    knobs = RowsSlice(task=TaskSpec(name="mine", kind=name), selection_rows=10)
    facts = prepare_rows(write(tmp_path / "t.parquet", labels), knobs, tmp_path / "rows")
    assert sum(facts.unlabelled.values()) == 40 and sum(facts.rows.values()) == 80
    schema = pq.read_schema(tmp_path / "rows" / "train.parquet")
    assert schema.field("label").type == READERS[name].label_type()
    assert read_facts(tmp_path / "rows").kind == name


def test_a_column_that_a_type_needs_is_asked_for_by_its_role(tmp_path: Path) -> None:
    path, spec = write(tmp_path / "t.parquet", [0, 1]), TaskSpec(name="mine")
    columns = READERS["classification"].columns
    assert len(read_columns(path, spec, columns, None).rows) == 2
    with pytest.raises(DataError, match=r"the task names no context column; t\.parquet has text, label"):
        read_columns(path, spec, (*columns, Column("context", "the passage")), None)
    assert len(read_columns(path, spec, (*columns, Column("hint", "a hint", required=False)), None).rows) == 2


def test_an_empty_text_is_refused_before_rows_are_divided(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [0, 1], pair=["a second one", " "])
    with pytest.raises(DataError, match="row 2: the text in column 'pair' is empty"):
        divided_rows(path, RowsSlice(task=TaskSpec(name="mine", pair="pair")))


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ([0, 1, 1] * 9, "classification"),
        ([1.0, 2.0] * 9, "classification"),
        ([0.25, 1], "regression"),
        ([["a"], ["a", "b"]] * 9, "multi-label"),
    ],
)
def test_the_starter_recipe_of_a_table_is_one_of_its_type(labels: list[Any], name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", labels)
    values = YAML(typ="safe").load(starter_recipe(str(path), tmp_path / "mine.yaml").text)
    found = Recipe.model_validate(values)
    assert found.spec.kind == name and found.spec.headline == TASK_TYPES[name].headline
    assert (found.spec.labels is not None) == TASK_TYPES[name].has_classes


def test_a_table_without_a_text_fits_no_type(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet has the columns a, b, and none of them is a text beside a label"):
        starter_recipe(str(tmp_path / "t.parquet"), tmp_path / "mine.yaml")


# --- recipes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASK_TYPES)
def test_a_task_has_the_metrics_of_its_type(name: str) -> None:
    kind = TASK_TYPES[name]
    needed = {"pair": "other"} if any(one.role == "pair" and one.required for one in kind.columns) else {}
    assert recipe(kind=name, **needed).spec.metrics == (kind.headline,), "without metrics, the one that decides"
    needed |= {"group": "question"} if {*kind.metrics} & {*OF_GROUPS} else {}
    whole = recipe(kind=name, **needed, metrics=kind.metrics, headline=kind.metrics[-1])
    assert whole.spec.headline == kind.metrics[-1]
    others = {metric for one in TASK_TYPES.values() for metric in one.metrics} - set(kind.metrics)
    for metric in others:
        with pytest.raises(ValidationError, match=f"task.metrics names '{metric}'; "):
            recipe(kind=name, metrics=[metric], headline=metric)


def test_names_of_classes_are_refused_where_there_are_none() -> None:
    with pytest.raises(ValidationError, match="task.labels names classes, and mine is a regression; leave labels out"):
        recipe(kind="regression", labels=["no", "yes"])


def test_an_unknown_type_names_the_nearest_and_a_form_offers_the_known() -> None:
    with pytest.raises(ValidationError, match="unknown task type 'regresion'; did you mean 'regression'"):
        recipe(kind="regresion")
    assert TaskSpec.model_json_schema()["properties"]["kind"]["enum"] == list(TASK_TYPES)


# --- keys -------------------------------------------------------------------------------------------------------------


def changed(module: str, before: str, after: str) -> Program:
    """Return the package with one edit of a module."""
    source = program().sources[module]
    assert source.count(before) == 1
    return edited({module: source.replace(before, after)})


@pytest.mark.parametrize(
    ("module", "before", "after"),
    [
        ("tasks.task_types.regression.rows", "value = float(label)", "value = float(label) + 0"),
        ("tasks.task_types.readers", '"regression": REGRESSION,', '"regression": REGRESSION, "further": REGRESSION,'),
    ],
    ids=["another type's reader", "a further type"],
)
def test_rows_of_a_type_count_its_reader_alone(module: str, before: str, after: str) -> None:
    there = changed(module, before, after)
    assert changed_stages(there, KNOBS) == set()
    reading = {spec.name for spec in all_specs() if any(name == "READERS" for _, name in narrowing(spec.roots).asks)}
    assert reading == ROWS_STAGES


def test_rows_of_a_type_count_its_own_reader() -> None:
    there = changed("tasks.task_types.classification.rows", "MOST_CLASSES = 200", "MOST_CLASSES = 300")
    assert "prepare-rows" in changed_stages(there, KNOBS)


def test_readers_are_read_without_torch() -> None:
    code = "import sys, tasks.task_types.readers; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
