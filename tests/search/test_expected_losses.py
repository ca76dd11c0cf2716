"""What a vocabulary and a format cost in the metric: which of those that fit a shape gets, and the order of shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.branches.search.supernet import with_states
from flows.cli.runner import planned_search, run_recipe
from flows.home import Home
from tasks.report.tables.search import planned_lines, search_lines
from tasks.results.run import RunResult
from tasks.results.search import JudgedShape, SearchResult
from tasks.search.expected_losses import losses_of_scores, score_as_served, with_loss
from tasks.search.space import SizedVocabulary, fitting_shapes
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


def test_losses_are_differences_to_the_best_and_shares_of_errors() -> None:
    found = losses_of_scores({"whole": 0.90, "used": 0.91, "500": 0.86}, "accuracy")
    assert found == pytest.approx({"whole": 0.01, "used": 0.0, "500": 0.05})
    errors = losses_of_scores({"whole": -2.0, "500": -2.5}, "mse")
    assert errors == pytest.approx({"whole": 0.0, "500": 0.25})
    assert with_loss(0.9, 0.05, "accuracy") == pytest.approx(0.85)
    assert with_loss(-4.0, 0.25, "mse") == pytest.approx(-5.0), "an error a quarter larger"
    assert with_loss(None, 0.05, "accuracy") is None
    assert losses_of_scores({"whole": 0.0, "500": 0.0}, "mse") == {"whole": 0.0, "500": 0.0}


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
    assert any(
        "first format that fits, with the largest vocabulary: which of them costs least" in one for one in unknown
    )
    assert not any("costs least" in one for one in planned_lines(result, []))


@pytest.mark.slow
@pytest.mark.parametrize("ranking", ["halving", "supernet"])
def test_a_search_scores_its_teacher_with_each_vocabulary_and_in_each_format(
    ranking: str,
    prefect_server: None,
    engines_here: None,
    tiny_bert: Path,
    tiny_rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flows.branches.search.supernet.TRUSTED", -1.0)  # tiny models have any tau
    home = Home(tmp_path / "home").create()
    recipe = search_recipe(
        tiny_bert,
        tiny_rows,
        space={"layers": [1, 2], "neurons": [0.5, 1.0], "vocabulary": ["whole", 60], "formats": ["onnx", "int8"]},
        budget={"bytes": "0.9x"},
        ranking=ranking,
        candidates=1,
        supernet={"prediction": recipe_training(), "rows": 20},
        training={**recipe_training(), "signal": "teacher"},
    )
    _, found, lines = planned_search(recipe, home)
    assert isinstance(found, SearchResult) and found.table is None
    result = RunResult.model_validate(run_recipe(recipe, home=home, kind="search"))
    search = result.search
    assert search is not None and search.losses is not None and set(search.losses) == {"whole", "60", "int8"}
    assert min(search.losses["whole"], search.losses["60"]) == 0 <= search.losses["int8"]
    assert {"vocabulary-whole", "vocabulary-60"} <= {
        one.label for one in result.stages if one.name == "trim-vocabulary"
    }
    assert any("cost the teacher, in accuracy: " in line for line in search_lines(search))
    assert {row["cache"] for row in plan_recipe(recipe, home=home, kind="search")} == {"hit"}
    assert not {"vocabulary-whole", "vocabulary-60"} & {row.name for row in result.models}, "they are no candidates"


def recipe_training() -> dict[str, object]:
    return {"steps": 8, "batch_size": 8, "max_length": 16, "evaluations": 1, "precision": "fp32", "learning_rate": 3e-3}
