"""Judging sets: labels become the task's classes by name, rows are found, held against what is learned from, and taken
out where the recipe says so."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.catalog import GLUE, TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.judging_sets import (
    compare_judging_set,
    files_of_set,
    judging_rows,
    prepare_judging_set,
    purge_train,
    resolve_judging_set,
)
from tasks.ports.rows.prepared import write_rows
from tasks.ports.rows.splits import Split
from tasks.recipe.data import Data, JudgingSet
from tasks.recipe.slices import JudgingRowsSlice
from tasks.task_types.classification.rows import as_classes
from tasks.task_types.interfaces import JudgingLabels
from tasks.task_types.readers import READERS
from tests.task_types.spans.tables import write_asked

NLI = ["entailment", "neutral", "contradiction"]
TRAIN = [
    ("the man sleeps on the old bench", "he is awake", 2),
    ("a dog runs over the wet grass today", "an animal moves", 0),
    ("it rains", "it is wet", 1),
]


def knobs(**changes: Any) -> JudgingRowsSlice:
    values = {"name": "other", "task_type": "classification", "text": "premise", "pair": "hypothesis", "label": "label"}
    return JudgingRowsSlice.model_validate(values | changes)


def stated(**changes: Any) -> JudgingLabels:
    return JudgingLabels("here", **changes)


def write_csv(
    path: Path, rows: list[tuple[Any, ...]], head: tuple[str, ...] = ("premise", "hypothesis", "label")
) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Prepared rows of a task of three classes, as the stage before writes them."""
    train = Split("train", *(list(column) for column in zip(*TRAIN, strict=True)))  # type: ignore[arg-type]
    spec = TaskSpec(name="nli", text="premise", pair="hypothesis")
    write_rows(
        {"train": train, "validation": Split("v", ["so it is"], ["it is so"], [0])},
        spec,
        NLI,
        tmp_path / "rows",
        READERS["classification"],
    )
    return tmp_path / "rows"


# --- labels -----------------------------------------------------------------------------------------------------------


def test_labels_become_the_tasks_classes_by_name_whatever_their_order() -> None:
    assert as_classes(["contradiction", "entailment", None], stated(), NLI) == ([2, 0, None], None)
    assert as_classes([0, 2, -1], stated(), NLI, ["contradiction", "neutral", "entailment"]) == (
        [2, 0, None],
        None,
    ), "as the file declares"
    assert as_classes([0, 1], stated(meanings=("neutral", "entailment")), NLI) == ([1, 0], None), "as the recipe says"
    assert as_classes([0, 2], stated(numbered=True), NLI) == ([0, 2], None), (
        "rows of the recipe's own source are numbered as train is"
    )
    assert as_classes([1, 0], stated(), ["0", "1"]) == ([1, 0], None), (
        "classes that nobody named are called by their numbers"
    )


def test_a_label_that_stands_for_several_classes_merges_them() -> None:
    two = stated(classes={"not_entailment": ("neutral", "contradiction")})
    assert as_classes(["not_entailment", "entailment"], two, NLI) == ([1, 0], [0, 1, 1])
    one = stated(classes={"neutral": ("not_entailment",), "contradiction": ("not_entailment",)})
    assert as_classes(["neutral", "contradiction", "entailment"], one, ["entailment", "not_entailment"]) == (
        [1, 1, 0],
        None,
    )
    none = stated(classes={"-": ()})
    assert as_classes(["-", "neutral"], none, NLI) == ([None, 1], None), "a label that stands for no class is none"


@pytest.mark.parametrize(
    ("labels", "changes", "sentence"),
    [
        (
            ["not_entailment"],
            {},
            "here: the label 'not_entailment' is none of the task's classes entailment, neutral, contradiction; map "
            "it to one",
        ),
        (["NEUTRAL"], {}, r"as in classes: \{NEUTRAL: neutral\}"),
        (
            [0, 1],
            {},
            r"its labels are numbers \(0\), and their meaning is unknown; set labels: \[entailment, neutral, "
            r"contradiction\]",
        ),
        ([3], {"meanings": ("entailment", "neutral")}, "the label 3 is none of 0 to 1"),
        (
            ["neutral"],
            {"classes": {"neutrl": ("neutral",)}},
            "here.classes names 'neutrl', and there is no such label; .*did you mean 'neutral'",
        ),
        (
            ["a", "neutral"],
            {"classes": {"a": ("neutral", "contradiction")}},
            "'a' and 'neutral' are mapped to different classes that overlap",
        ),
    ],
)
def test_what_is_no_class_is_one_sentence(labels: list[Any], changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        as_classes(labels, stated(**changes), NLI)


# --- where they are ---------------------------------------------------------------------------------------------------


def test_the_rows_of_a_folder_are_found_by_the_whole_name_of_their_file(tmp_path: Path) -> None:
    for name in (
        "validation_matched.csv",
        "validation_mismatched.csv",
        "axb/test.csv",
        "big/train-00000-of-00002.csv",
        "big/train-00001-of-00002.csv",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_csv(tmp_path / name, [("a", "b", "neutral")])
    assert [path.name for path in files_of_set(tmp_path, "validation_mismatched", "here")] == [
        "validation_mismatched.csv"
    ]
    assert [path.parent.name for path in files_of_set(tmp_path, "", "here")] == ["axb"], (
        "a test where there is no validation"
    )
    assert len(files_of_set(tmp_path, "big/train", "here")) == 2
    with pytest.raises(
        DataError,
        match="holds no validation_mismatch; set split to one of axb/test, big/train, .*did you mean "
        "'validation_mismatched'",
    ):
        files_of_set(tmp_path, "validation_mismatch", "here")
    given = Data(source=str(tmp_path))
    assert resolve_judging_set(
        "mismatched", JudgingSet(split="validation_mismatched"), given, GLUE["mnli"]
    ).uri.endswith("validation_mismatched.csv")
    assert resolve_judging_set("big", JudgingSet(split="big/train"), given, GLUE["mnli"]).uri == str(
        tmp_path.resolve()
    ), "shards are a folder"


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_set_is_written_in_the_terms_of_the_task(rows: Path, tmp_path: Path) -> None:
    source = write_csv(
        tmp_path / "axb.csv",
        [("it rains now", "it is wet here", "entailment"), ("nobody came", "someone did", "not_entailment")],
    )
    two = (("not_entailment", ("neutral", "contradiction")),)
    facts = prepare_judging_set(source, knobs(classes=two), rows, tmp_path / "set")
    assert facts.model_dump(mode="json", include={"rows", "merged", "merges", "left_out", "unlabelled"}) == {
        "rows": 2,
        "merged": [0, 1, 1],
        "merges": ["neutral and contradiction"],
        "left_out": 0,
        "unlabelled": 0,
    }
    table = pq.ParquetFile(tmp_path / "set" / "validation.parquet").read().to_pydict()
    assert table["label"] == [0, 1] and table["pair"] == ["it is wet here", "someone did"] and table["group"] == [0, 1]
    assert json.loads((tmp_path / "set" / "task.json").read_text()) == {"merged": [0, 1, 1]}


def test_rows_that_overlap_with_train_are_left_out_where_the_recipe_says_so(rows: Path, tmp_path: Path) -> None:
    source = write_csv(
        tmp_path / "s.csv",
        [("it rains", "all is dry", "contradiction"), ("a cat sits", "a cat", "entailment"), ("x y", "z", "")],
    )
    assert prepare_judging_set(source, knobs(leave_out=True), rows, tmp_path / "left").left_out == 1
    kept = prepare_judging_set(source, knobs(), rows, tmp_path / "kept")
    assert (kept.rows, kept.left_out, kept.unlabelled) == (2, 0, 1)
    with pytest.raises(
        DataError,
        match=r"none of the 1 rows of one.csv remains for evaluation \(0 have no label, 1 overlap with training rows\)",
    ):
        prepare_judging_set(
            write_csv(tmp_path / "one.csv", [("it rains", "b", "neutral")]),
            knobs(leave_out=True),
            rows,
            tmp_path / "none",
        )


def test_fewer_rows_are_the_same_ones_wherever_they_stand(tmp_path: Path) -> None:
    given = [(f"text {number}", f"other {number}", "neutral") for number in range(30)]
    first, second = (write_csv(tmp_path / name, some) for name, some in (("a.csv", given), ("b.csv", given[::-1])))
    taken = [set(judging_rows(source, knobs(rows=7), NLI)[0].texts) for source in (first, second)]
    assert taken[0] == taken[1] and len(taken[0]) == 7


def test_rows_that_are_judged_together_are_taken_together(tmp_path: Path) -> None:
    """Of four answers to a question one alone is easily all right."""
    given = [(f"text {row // 4}", f"answer {row}", "neutral", str(row // 4)) for row in range(40)]
    source = write_csv(tmp_path / "asked.csv", given, ("premise", "hypothesis", "label", "question"))
    split, _ = judging_rows(source, knobs(rows=10, group="question"), NLI)
    assert len(split) == 8 and sorted(map(list(split.texts).count, set(split.texts))) == [4, 4]


def test_a_set_without_a_column_of_the_task_is_told_where_to_name_its_own(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "other.csv", [("it rains", "it is wet", "yes")], ("premise", "hypothesis", "verdict"))
    told = r"has no label column 'label'; .* name the set's own columns in data\.judge\.other "
    with pytest.raises(DataError, match=told):
        judging_rows(source, knobs(), NLI)


def test_questions_of_one_passage_are_one_group_of_intervals(tmp_path: Path) -> None:
    source = write_asked(tmp_path, 60)
    columns = knobs(task_type="spans", text="question", pair="context", label="answers")
    split, _ = judging_rows(source, columns, None)
    assert split.pairs is not None and len(set(split.numbers.tolist())) == len(set(split.pairs)) < len(split)


@pytest.mark.parametrize(
    ("kind", "rows", "names", "sentence"),
    [
        (
            "ranking",
            [{"text": f"query {row}", "pair": "a text", "label": 1} for row in range(9)],
            None,
            "each query of the judging set other has one text, and there is nothing to rank",
        ),
        (
            "ranking",
            [{"text": "a query", "pair": f"text {row}", "label": 0} for row in range(9)],
            None,
            "no text of the judging set other is relevant",
        ),
        (
            "retrieval",
            [{"text": f"query {row}", "pair": f"passage {row % 3}", "label": 1} for row in range(60)],
            None,
            "the judging set other has 3 different passages, and among at most ten every search finds all",
        ),
        (
            "embedding",
            [{"text": f"one {row}", "pair": f"other {row}", "label": 2.0} for row in range(9)],
            None,
            "all 9 pairs of the judging set other have the score 2",
        ),
        (
            "tokens",
            [{"text": ["a", "b"], "label": ["O", "O"]}] * 4,
            ["O", "B-PER", "I-PER"],
            "the judging set other has no entity",
        ),
        (
            "tokens",
            [{"text": ["a", "b"], "label": [1, 2]}] * 4,
            ["O", "B-PER", "I-PER"],
            r"data.judge.other: its tags are numbers \(1\), and their meaning is unknown; set labels",
        ),
    ],
)
def test_a_set_that_can_tell_nothing_is_refused_as_rows_of_the_task_are(
    kind: str, rows: list[dict[str, Any]], names: list[str] | None, sentence: str, tmp_path: Path
) -> None:
    """Every model finds each of three passages, and ranks one text of each query first: such figures led a gate."""
    source = tmp_path / "s.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = knobs(task_type=kind, text="text", pair="pair" if "pair" in rows[0] else None, label="label")
    with pytest.raises(DataError, match=sentence):
        judging_rows(source, columns, names)


def test_regression_keeps_its_numbers(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "sts.csv", [("a man", "a human", 4.5), ("a dog", "a plane", 0.0)])
    split, facts = judging_rows(source, knobs(task_type="regression"), None)
    assert split.labels == [4.5, 0.0] and facts.merged is None and facts.merges == ()


# --- what they are held against ---------------------------------------------------------------------------------------


def test_a_set_is_held_against_everything_that_is_learned_from(rows: Path, tmp_path: Path) -> None:
    given = [
        ("it rains", "new one", "neutral"),
        ("so is another text", "never seen before", "neutral"),
        ("quite new", "and other", "neutral"),
    ]
    prepare_judging_set(write_csv(tmp_path / "s.csv", given), knobs(), rows, tmp_path / "set")
    (tmp_path / "transfer").mkdir()
    pq.write_table(
        pa.table({"text": ["never seen before"], "pair": pa.nulls(1, pa.string())}),
        tmp_path / "transfer" / "train.parquet",
    )
    (tmp_path / "corpus.txt").write_text("they say that so is another text of ours\nand nothing else\nit rains\n")
    found = compare_judging_set(tmp_path / "set", rows, tmp_path / "transfer", tmp_path / "corpus.txt", "text", None)
    assert found == {
        "rows": 3,
        "leaked": {"training rows": 1, "transfer text": 1, "general text": 2},
        "learned": {"training rows": 1, "transfer text": 1, "general text": 2},
    }
    assert compare_judging_set(tmp_path / "set", rows, None, tmp_path / "corpus.txt", "text", 5)["leaked"] == {
        "training rows": 1,
        "general text": 1,
    }


def test_train_is_purged_for_a_set_and_nothing_else_of_the_rows_changes(rows: Path, tmp_path: Path) -> None:
    prepare_judging_set(
        write_csv(tmp_path / "s.csv", [("it rains", "new one", "neutral")]), knobs(), rows, tmp_path / "set"
    )
    facts = purge_train(rows, {"other": tmp_path / "set"}, tmp_path / "left")
    assert facts.as_json() == {
        "rows": 1,
        "by": {"other": 1},
        "left": 2,
        "words_left": pytest.approx((7 + 3 + 8 + 3) / 2),
    }
    before, after = (pq.ParquetFile(folder / "train.parquet").read() for folder in (rows, tmp_path / "left"))
    assert (
        after.column("text").to_pylist() == [text for text, _, _ in TRAIN[:2]]
        and after.column("id").to_pylist() == before.column("id").to_pylist()[:2]
    )
    assert all(
        (rows / name).read_bytes() == (tmp_path / "left" / name).read_bytes()
        for name in ("validation.parquet", "task.json")
    )
    everything = [(text, pair, "neutral") for text, pair, _ in TRAIN[:2]]
    prepare_judging_set(write_csv(tmp_path / "t.csv", everything), knobs(), rows, tmp_path / "much")
    with pytest.raises(
        DataError,
        match="2 of 3 training rows overlap with rows of other and would be removed; at most 40% may be removed: set "
        "overlaps: leave-out",
    ):
        purge_train(rows, {"other": tmp_path / "much"}, tmp_path / "nothing")
