"""What a vocabulary and a format cost in the metric: which of those that fit a shape gets, and the order of shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.branches.search.supernet import with_states
from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.ports.store.folder import FolderStore
from tasks.report.tables.search import planned_lines, search_lines
from tasks.results.facts import ModelFacts
from tasks.results.run import RunResult
from tasks.results.search import JudgedShape, SearchResult
from tasks.search.expected_losses import expected_loss, losses_of_scores, score_as_served, with_loss, without_unknown
from tasks.search.space import SizedVocabulary, fitting_forms, fitting_shapes
from tests.command_line import plan_recipe
from tests.search.test_search import search_recipe
from tests.search.test_space import WHOLE, search_of, table

HALF = SizedVocabulary("500", 500)


def shape(name: str, score: float | None, way: str = "torch", pieces: str = "whole") -> JudgedShape:
    return JudgedShape(
        name=name, layers=1, hidden=8, heads=1, feed_forward=8, width=1, neurons=1, vocabulary=1, pieces=pieces,
        format=way, ms=len(name), bytes=len(name), flops=1, parameters=1, scores=(score,),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({}, ("torch", 500)),  # the first format that fits, as nothing is known
        ({"500": 0.02, "int8": 0.005}, ("int8", 1000)),  # fewer bits cost less than fewer pieces
        ({"500": 0.005, "int8": 0.02}, ("torch", 500)),
        ({"500": 0.01, "int8": 0.01}, ("torch", 500)),  # equals: the first format
        ({"500": 0.0, "int8": 0.0}, ("torch", 500)),
    ],
)
def test_a_shape_gets_what_fits_and_costs_the_teacher_least(
    losses: dict[str, float], expected: tuple[str, int]
) -> None:
    """In the order of formats alone, the fewest pieces were taken in the first one, whatever they cost."""
    search = search_of(
        budget={"bytes": 250_000},
        space={"layers": [2], "neurons": [1.0], "formats": ["torch", "int8"], "vocabulary": ["whole", 500]},
    )
    (one,) = fitting_shapes(search, table("torch", "int8"), [WHOLE, HALF], None, losses)
    assert (one.format, one.vocabulary) == expected and one.bytes <= 250_000


def test_both_losses_count_and_a_budget_is_never_left_for_a_smaller_loss() -> None:
    search = search_of(
        budget={"bytes": 120_000},
        space={"layers": [2], "neurons": [1.0], "formats": ["torch", "int8"], "vocabulary": ["whole", 500]},
    )
    (one,) = fitting_shapes(search, table("torch", "int8"), [WHOLE, HALF], None, {"500": 0.3, "int8": 0.1})
    assert (one.format, one.vocabulary) == ("int8", 500), "nothing else fits"
    roomy = search.model_copy(update={"budget": search_of(budget={"bytes": "1x"}).budget})
    (one,) = fitting_shapes(roomy, table("torch", "int8"), [WHOLE, HALF], None, {"500": 0.3, "int8": 0.1})
    assert (one.format, one.vocabulary) == ("torch", 1000)


def test_losses_are_differences_to_the_teacher_and_shares_of_errors() -> None:
    found = losses_of_scores({"used": 0.91, "500": 0.86}, 0.90, "accuracy")
    assert found == pytest.approx({"used": 0.0, "500": 0.04}), "a better score by chance is no reason for fewer pieces"
    errors = losses_of_scores({"500": -2.5, "400": -1.9}, -2.0, "mse")
    assert errors == pytest.approx({"500": 0.25, "400": 0.0})
    assert with_loss(0.9, 0.05, "accuracy") == pytest.approx(0.85)
    assert with_loss(-4.0, 0.25, "mse") == pytest.approx(-5.0), "an error a quarter larger"
    assert with_loss(None, 0.05, "accuracy") is None
    assert losses_of_scores({"500": -1.0}, 0.0, "mse") == {"500": 0.0}
    assert without_unknown({"500": 0.03, "int8": 0.0}, ["int8", "int8-table4"]) == {
        "500": 0.03,
        "int8": 0.0,
        "int8-table4": 0.03,
    }


def test_shapes_are_ranked_by_what_is_left_in_their_format() -> None:
    """The better score lost a point in four bits, and was taken for the better model."""
    shapes = [shape("coarse", 0.900, "int8-table4"), shape("exact", 0.895), shape("no", None), shape("bits", 0.890)]
    losses = {"int8-table4": 0.01}
    ranked = with_states(shapes, 4, losses, "accuracy")
    assert [one.name for one in ranked] == ["exact", "bits", "coarse", "no"], "of equals the one with fewer bytes"
    assert [one.name for one in with_states(shapes, 4, {}, "accuracy")] == ["coarse", "exact", "bits", "no"]
    error = shape("error", -2.0, "int8")
    assert score_as_served(error, {"int8": 0.1}, "mse") == pytest.approx(-2.2)
    assert score_as_served(shape("none", None), {}, "mse") < -1e9, "a missing error is not the best one"


def test_losses_are_told_and_a_plan_says_that_they_are_not_known() -> None:
    known = {"whole": 0.0, "4000": 0.0213, "int8": 0.002}
    result = SearchResult(scored_by="accuracy", budgets=("x",), points=1, fitting=1, table=table("torch"), losses=known)
    (told,) = [line for line in search_lines(result) if "cost the teacher" in line]
    assert "cost the teacher, in accuracy: all pieces 0.000, 4,000 pieces 0.021, int8 0.002. Each shape" in told
    errors = result.replaced(scored_by="mse", losses={"int8": 0.015})
    assert any("cost the teacher, in mse: int8 1.5 %." in line for line in search_lines(errors))
    unknown = planned_lines(result.replaced(losses=None), [])
    assert any("first format that fits, with the largest vocabulary: what both cost is known" in one for one in unknown)
    assert not any("what both cost" in one for one in planned_lines(result, []))


SPACE = {"layers": [1, 2], "neurons": [0.5], "vocabulary": ["whole", 60], "formats": ["onnx", "int8"]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def between(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path) -> float:
    """Bytes in which a shape of two layers fits as a graph with fewer pieces, and not with all."""
    short = {"rounds": 1, "shapes": 1, "candidates": 1}
    recipe = search_recipe(tiny_bert, tiny_rows, space=SPACE, budget={"bytes": "1x"}, **short)
    search = RunResult.model_validate(run_recipe(recipe, home=home, kind="search")).search
    assert search is not None and search.table is not None and search.losses == {"int8": search.losses["int8"]}
    (cell,) = [one for one in search.table.cells if (one.format, one.neurons) == ("onnx", 0.5)]
    return float(cell.bytes.of(2) - (search.table.vocabulary - 60) / 2 * cell.row_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("ranking", ["halving", "supernet"])
def test_a_search_scores_its_teacher_with_each_vocabulary_and_in_each_format(
    ranking: str, between: float, home: Home, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.branches.search.supernet.TRUSTED", -1.0)  # tiny models have any tau
    monkeypatch.setattr("flows.branches.search.supernet.LEAST_ORDERED", 0.0)
    monkeypatch.setattr("flows.branches.search.supernet.LEAST_CHECKED", 2)
    monkeypatch.setattr("flows.branches.search.shapes.LEAST_CHECKED", 2)
    recipe = search_recipe(
        tiny_bert,
        tiny_rows,
        space=SPACE,
        budget={"bytes": between},
        ranking=ranking,
        candidates=1,
        supernet={"prediction": recipe_training(), "rows": 20},
        training={**recipe_training(), "signal": "teacher"},
    )
    result = RunResult.model_validate(run_recipe(recipe, home=home, kind="search"))
    search = result.search
    assert search is not None and search.losses is not None and {*search.losses} == {"whole", "60", "int8"}
    labels = [one.label for one in result.stages if one.name == "trim-vocabulary"]
    assert labels.count("vocabulary-60") == 1 and "vocabulary-whole" not in labels
    # the losses are those of the stages: the teacher's own score, and that of the teacher with fewer pieces
    store = FolderStore(Path(home.store))
    keys = {one.label or one.name: one.key for one in result.stages}
    made = [store.find(keys[name]) for name in ("finetune-teacher", "vocabulary-60")]
    own, trimmed = (one.read(ModelFacts).score for one in made if one is not None)
    assert search.losses["whole"] == 0 and search.losses["60"] == pytest.approx(max(0.0, own - trimmed))
    assert search.table is not None and recipe.search is not None
    both = [SizedVocabulary("whole", search.table.vocabulary), SizedVocabulary("60", 60)]
    forms = {one[0].layers: one for one in fitting_forms(recipe.search, search.table, both, None)}
    assert [(one.format, one.pieces) for one in forms[2]] == [("onnx", "60"), ("int8", "whole")]
    for one in search.shapes:
        costs = {form.format: expected_loss(form, search.losses) for form in forms[one.layers]}
        assert costs[one.format] == min(costs.values())
    assert any("cost the teacher, in accuracy: " in line for line in search_lines(search))
    assert {row["cache"] for row in plan_recipe(recipe, home=home, kind="search")} == {"hit"}
    assert "vocabulary-60" not in {row.name for row in result.models}, "it is no candidate"


def recipe_training() -> dict[str, object]:
    return {"steps": 8, "batch_size": 8, "max_length": 16, "evaluations": 1, "precision": "fp32", "learning_rate": 3e-3}
