"""Queries with graded texts: tables of both forms, metrics beside scikit-learn's, losses, and hostile tables."""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from ruamel.yaml import YAML
from sklearn.metrics import average_precision_score, ndcg_score
from torch.nn import functional as F

from flows.recipes.starter import starter_recipe
from tasks.catalog import TaskSpec
from tasks.errors import DataError, RecipeError
from tasks.metrics.metrics import METRICS
from tasks.ports.rows.prepared import prepare_rows, prepare_transfer
from tasks.ports.rows.row_files import StoredRows, read_split
from tasks.ports.rows.table_files import write_table
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice, TransferSlice
from tasks.task_types.answers import ANSWERS
from tasks.task_types.heads import HEADS
from tasks.task_types.ranking.candidates import grade_targets
from tests.methods.oracles import Oracle, reads
from tests.task_types.ranking.tables import write_graded

FLAT = {"text": "q", "pair": "p", "label": "g"}
TWO: dict[str, list[Any]] = {"q": ["a?", "b?", "a?", "b?"], "p": ["w", "x", "y", "z"], "g": [0, 1, 2, 0]}
HEAD, RANKING = HEADS["ranking"], ANSWERS["ranking"]
TARGETS = torch.tensor([*grade_targets(3, "1 0 2", 3), *grade_targets(5, None, 2)])
OURS = torch.tensor([0.5, 2.0, -1.0, 0.3, 0.4])[:, None].requires_grad_()
THEIRS = torch.tensor([5.0, 9.0, 4.0, -3.0, 2.0])[:, None]


def prepared(folder: Path, columns: dict[str, list[Any]], **task: Any) -> StoredRows:
    """Prepare rows of which none is held back but all again."""
    for split in ("train", "validation"):
        write_table(folder / f"{split}.parquet", columns)
    spec = TaskSpec(name="search", kind="ranking", **{**FLAT, **task})
    prepare_rows(folder, RowsSlice(task=spec, selection_rows=0, purge=False), folder / "rows")
    return read_split(folder / "rows", "validation")


def test_rows_of_one_query_are_one_row(tmp_path: Path) -> None:
    rows = prepared(tmp_path, TWO)
    assert rows.texts == ["a?", "b?"] and rows.pairs == ["w\ny", "x\nz"] and rows.labels == ["0 2", "1 0"]


def test_lists_of_texts_and_grades_are_rows_already(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {"q": ["a?", "b?"], "p": [["w", "y"], ["x", "z"]], "g": [[0, 2], [1, 0]]}
    rows = prepared(tmp_path, columns, pair="{p[]}")
    assert rows.pairs == ["w\ny", "x\nz"] and rows.labels == ["0 2", "1 0"]


def test_queries_without_grades_are_unlabelled(tmp_path: Path) -> None:
    assert prepared(tmp_path, {**TWO, "g": [0, None, 2, None]}).texts == ["a?"]


def test_texts_of_one_unlabelled_query_are_one_row(tmp_path: Path) -> None:
    """A query with one text teaches nothing: every loss compares its texts."""
    prepared(tmp_path, TWO)
    several, lists = tmp_path / "several.parquet", tmp_path / "lists.parquet"
    write_table(several, {"q": ["c?", "d?", "c?", "d?"], "p": ["w", None, "y z", "z"]})
    write_table(lists, {"q": ["c?", "d?"], "p": [["w", "y z"], ["z"]]})
    for source, template in ((several, "p"), (lists, "{p[]}")):
        output = tmp_path / source.stem
        knobs = TransferSlice(source="", task_type="ranking", text="q", pair=template)
        assert prepare_transfer(source, knobs, output, tmp_path / "rows")["rows"] == 2
        found = read_split(output, "train")
        assert (found.texts, found.pairs, found.labels) == (["c?", "d?"], ["w\ny z", "z"], [None, None])
    write_table(several, {"q": ["c?", "d?"], "p": ["w", "x"]})
    with pytest.raises(DataError, match=r"several.parquet: each query has one text, and there is nothing to rank"):
        prepare_transfer(several, knobs.model_copy(update={"pair": "p"}), tmp_path / "none", tmp_path / "rows")


@pytest.mark.parametrize(
    ("changes", "task", "sentence"),
    [
        ({"g": [0, 1, None, 0]}, {}, "query 'a?': one of its texts has no grade, and others have"),
        ({"g": [0.5, 1.0, 1.0, 0.0]}, {}, "query 'a?': the grade 0.5 is no whole number from 0 to 10"),
        ({"g": [0, 1, 11, 0]}, {}, "query 'a?': the grade 11 is no whole number from 0 to 10"),
        ({"g": [0, -2, 1, 0]}, {}, "query 'b?': the grade -2 is no whole number"),
        ({"g": [0.0, math.inf, 1.0, 0.0]}, {}, "query 'b?': the grade inf is no whole number"),
        ({"g": [0.0, 1.0, math.nan, 0.0]}, {}, "query 'a?': the grade nan is no whole number"),
        ({"g": ["no", "yes", "no", "no"]}, {}, "query 'a?': the grade 'no' is no whole number"),
        ({"g": [0, 0, 0, 0]}, {}, "no text of the train split is relevant; grade those that answer"),
        ({"q": ["a?", "b?", "c?", "d?"]}, {}, "each query of the train split has one text, and there is nothing"),
        ({"p": ["w", "x", " ", "z"]}, {}, "the text in column 'p' is empty"),
        ({"q": ["a?", "b?", "", "b?"]}, {}, "the text in column 'q' is empty"),
        ({}, {"pair": "passage"}, "has no pair column 'passage'; it has q, p, g"),
        ({"p": [["w"], ["x"], ["y"], ["z"]], "g": [[1, 0]] * 4}, {"pair": "{p[]}"}, "there are 2 grades for 1 texts"),
        ({}, {"pair": "{p[]}"}, "the column 'p' holds no list; name it without []"),
    ],
)
def test_a_hostile_table_gets_a_sentence(
    tmp_path: Path, changes: dict[str, list[Any]], task: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DataError) as told:
        prepared(tmp_path, {**TWO, **changes}, **task)
    assert sentence in str(told.value)


def test_init_recognises_queries_with_graded_passages(tmp_path: Path) -> None:
    starter = starter_recipe(str(write_graded(tmp_path, 60)), tmp_path / "mine.yaml")
    spec = Recipe.model_validate(YAML(typ="safe").load(starter.text)).spec
    assert (spec.kind, spec.text, spec.pair, spec.label) == ("ranking", "query", "passage", "label")
    assert any("texts on average, which label grades" in note for note in starter.notes)


# --- metrics ----------------------------------------------------------------------------------------------------------


def texts(rows: Any) -> np.ndarray:
    """Return rows of numbers as texts."""
    return np.asarray([" ".join(map(str, row)) for row in rows])


@reads("task_metrics", "ranking")
def test_figures_are_those_of_scikit_learn(oracle: Oracle) -> None:
    case = oracle.content
    scores_N, grades_N = texts(case["scores"]), texts(case["relevance"])
    for ours, theirs in (("ndcg_at_10", "ndcg10"), ("mrr_at_10", "mrr10")):
        for row, expected in enumerate(case["expected"][theirs]):
            found = METRICS[ours](scores_N[row : row + 1], grades_N[row : row + 1])
            assert found == pytest.approx(expected, abs=1e-9)
        assert METRICS[ours](scores_N, grades_N) == pytest.approx(np.mean(case["expected"][theirs]), abs=1e-9)


def test_graded_lists_beside_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    scores, grades = draw.normal(size=(30, 14)), draw.integers(0, 4, (30, 14))
    found = METRICS["ndcg_at_10"](texts(scores), texts(grades))
    assert found == pytest.approx(ndcg_score(2.0**grades - 1, scores, k=10), abs=1e-9)
    precision = np.mean([average_precision_score(row > 0, one) for row, one in zip(grades, scores, strict=True)])
    assert METRICS["average_precision"](texts(scores), texts(grades)) == pytest.approx(precision, abs=1e-9)


def test_equal_scores_stand_in_no_order_and_queries_without_an_answer_do_not_count() -> None:
    scores_N, grades_N = np.asarray(["1 1 0", "3 2 1"]), np.asarray(["0 1 0", "0 0 0"])
    assert METRICS["mrr_at_10"](scores_N, grades_N) == 0.75
    weights_RN = np.asarray([[1.0, 1.0], [0.0, 2.0]])
    assert METRICS["mrr_at_10"].weighted(scores_N, grades_N, weights_RN).tolist() == [0.75, 0.0]
    analysed = RANKING.alone({"answer": scores_N, "spread": np.zeros(2)}, grades_N, 5)
    assert analysed["wrong_first"] == 0.5, "no order of the second query has a right text first"


def test_a_model_with_one_score_for_all_texts_is_a_random_order() -> None:
    """The relevant text often stands first in a table, and must not be found by that."""
    scores_N, grades_N = np.asarray(["7 7 7 7"]), np.asarray(["1 0 0 0"])
    assert METRICS["mrr_at_10"](scores_N, grades_N) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert METRICS["average_precision"](scores_N, grades_N) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert METRICS["ndcg_at_10"](scores_N, grades_N) == pytest.approx(ndcg_score([[1, 0, 0, 0]], [[7, 7, 7, 7]]))
    assert RANKING.alone({"answer": scores_N, "spread": np.zeros(1)}, grades_N, 5)["wrong_first"] == 0.75


def test_ties_are_the_mean_over_all_of_their_orders() -> None:
    """Each order of tied texts as a list of its own, with scores that differ; more than ten texts, so that some of the
    tied ones are cut."""
    draw = np.random.default_rng(3)
    for _ in range(5):
        scores, grades = np.append(draw.integers(0, 3, 6), [9, 8, 7, 6, 5, 4]), draw.integers(0, 3, 12)
        for name in ("ndcg_at_10", "mrr_at_10", "average_precision"):
            found = [METRICS[name](texts([scores + shift]), texts([grades])) for shift in shifts(scores)]
            assert METRICS[name](texts([scores]), texts([grades])) == pytest.approx(np.mean(found), abs=1e-12)
        assert METRICS["ndcg_at_10"](texts([scores]), texts([grades])) == pytest.approx(
            ndcg_score([2.0**grades - 1], [scores], k=10), abs=1e-12
        )


def shifts(scores: np.ndarray) -> list[np.ndarray]:
    """Return small amounts for all orders of the first six texts; the others keep theirs."""
    return [np.append(np.asarray(order) / 100, np.zeros(len(scores) - 6)) for order in permutations(range(6))]


# --- losses -----------------------------------------------------------------------------------------------------------


def teacher_loss(
    formula: str, ours: torch.Tensor = OURS, theirs: torch.Tensor = THEIRS, **knobs: float
) -> torch.Tensor:
    """Return the loss against a teacher."""
    given: dict[str, Any] = {"temperature": 2.0, "hard_weight": 0.0, **knobs}
    return HEAD.teacher_loss({"logits": ours}, {"logits": theirs}, TARGETS, formula=formula, **given).mean()


def test_relevance_is_learned_text_by_text() -> None:
    expected = F.binary_cross_entropy_with_logits(OURS[:3, 0], torch.tensor([1.0, 0.0, 1.0]))
    torch.testing.assert_close(HEAD.label_loss({"logits": OURS}, TARGETS).mean(), expected)


def test_margins_are_over_all_pairs_of_a_query_and_know_no_scale_of_their_own() -> None:
    d = (OURS - THEIRS)[:, 0]
    pairs = [(0, 1), (0, 2), (1, 2), (3, 4)]
    expected = torch.stack([(d[one] - d[other]) ** 2 for one, other in pairs]).mean()
    torch.testing.assert_close(teacher_loss("margins"), expected)
    torch.testing.assert_close(teacher_loss("default"), expected)
    shifted = THEIRS + torch.tensor([7.0, 7.0, 7.0, -2.0, -2.0])[:, None]
    torch.testing.assert_close(teacher_loss("margins", theirs=shifted), expected)


def test_scores_and_lists() -> None:
    torch.testing.assert_close(teacher_loss("scores"), F.mse_loss(OURS, THEIRS))
    rows = (slice(0, 3), slice(3, 5))
    of_rows = [
        4 * F.kl_div(F.log_softmax(OURS[row, 0] / 2, 0), F.softmax(THEIRS[row, 0] / 2, 0), reduction="sum")
        for row in rows
    ]
    torch.testing.assert_close(teacher_loss("lists"), torch.stack(of_rows).mean())
    mixed = teacher_loss("scores", hard_weight=0.25)
    labels = HEAD.label_loss({"logits": OURS}, TARGETS).mean()
    torch.testing.assert_close(mixed, 0.75 * F.mse_loss(OURS, THEIRS) + 0.25 * labels)


def test_another_formula_or_weight_is_refused() -> None:
    with pytest.raises(RecipeError, match="unknown formula 'paper' for ranking; choose one of default, margins"):
        teacher_loss("paper")
    with pytest.raises(RecipeError, match="hard_weight is 2.0"):
        teacher_loss("lists", hard_weight=2.0)


@pytest.mark.parametrize(
    ("kind", "formula", "sentence"),
    [
        ("classification", "margins", "formula is 'margins', and mine is of type classification; legal are default, p"),
        ("ranking", "paper", "formula is 'paper', and mine is of type ranking; legal are default, margins"),
    ],
)
def test_a_recipe_names_a_formula_of_its_type(kind: str, formula: str, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Recipe.model_validate(
            {
                "name": "mine",
                "task": {"name": "mine", "kind": kind, "pair": "p"},
                "students": [{"name": "small", "layers": 2}],
                "task_distillation": {"prediction": {"formula": formula}},
            }
        )


def test_answers_compare_queries() -> None:
    answers, labels_N = ANSWERS["ranking"], np.asarray(["1 0", "0 2 0"])
    outputs = [
        {"logits": np.asarray([np.asarray(row, np.float32)[:, None] for row in rows], dtype=object)}
        for rows in ([[0.0, 9.0], [1.0, 2.0, 0.0]], [[8.0, 0.0], [3.0, 2.0, 0.0]])
    ]
    ours, theirs = (answers.read(one) for one in outputs)
    apart = answers.apart(ours, theirs, labels_N, np.asarray([5, 6]), 3)
    assert apart["counts"] == {"rows": 2, "student_better": 1, "teacher_better": 1}
    assert [one["id"] for one in apart["examples"]["surest"]] == [5]
    assert answers.alone(ours, labels_N, 10)["wrong_first"] == 0.5
    facts = answers.guess(ours["answer"], labels_N)
    assert 0.6 < facts["chance"] < 0.9 and answers.floor.least(facts) == pytest.approx(facts["chance"] + 0.05)
    assert answers.agreement(ours["answer"], theirs["answer"]) == 0
    assert answers.unchanged(ours["answer"], ours["answer"]).all()
