"""A whole search on a tiny real model: a budget, rounds, candidates with a verdict, asked again, and its dry run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import planned_search, run_recipe
from flows.home import Home
from tasks.errors import RecipeError
from tasks.recipe.recipe import Recipe
from tasks.report.tables.search import search_lines
from tasks.results.run import RunResult
from tasks.results.search import SearchResult
from tests.command_line import plan_recipe
from tests.families import write_tiny
from tests.flows.test_compress import FAST

pytestmark = pytest.mark.slow


def search_recipe(bert: Path, rows: Path, **search: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "seek",
            "task": {"name": "tiny", "text": "text", "metrics": ["accuracy"]},
            "data": {"source": str(rows), "selection_rows": 20, "holdout_rows": 30},
            "teacher": {"model": str(bert), "floor": 0.0, **FAST},
            "search": {
                "budget": {"bytes": "0.8x", "flops": "1G"},
                "space": {"layers": [1, 2], "neurons": [0.5, 1.0]},
                "training": {**FAST, "signal": "teacher"},
                "strategy": "top",
                "rounds": 2,
                "candidates": 2,
                "shapes": 3,
                **search,
            },
            "scoring": {"resamples": 100, "max_length": 16},
            "speed": {"repeats": 5, "warmup": 1, "seconds": 0.02, "length": 8},
            "resources": {"cores": 4, "threads_alone": 1},
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def first(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path) -> RunResult:
    recipe = search_recipe(tiny_bert, tiny_rows)
    return RunResult.model_validate(run_recipe(recipe, home=home, kind="search"))


def test_shapes_that_fit_are_trained_in_rounds_and_the_best_are_candidates(first: RunResult) -> None:
    search = first.search
    assert search is not None and search.table is not None
    share, flops = search.budgets
    assert re.fullmatch(r"bytes ≤ 0.8 of the teacher, [0-9]+ bytes", share) and flops == "flops ≤ 1,000,000,000 FLOPs"
    assert any("were compared on 20 selection rows, and 1,000 are wanted" in note for note in search.notes)
    assert (search.points, search.fitting, search.rounds) == (4, 4, (3, 2))
    states = {shape.name: (shape.state, len(shape.scores)) for shape in search.shapes}
    assert sorted(states) == ["l1", "l1-f16", "l2", "l2-f16"]
    assert sorted(states.values()) == [("candidate", 2), ("candidate", 2), ("left out", 1), ("not trained", 0)]
    assert states["l1-f16"] == ("not trained", 0), "the smallest shape is the last to be tried"


def test_candidates_are_judged_as_any_and_the_budget_is_a_criterion(first: RunResult) -> None:
    assert first.search is not None
    chosen = [shape for shape in first.search.shapes if shape.state == "candidate"]
    rows = {row.name: row for row in first.models}
    assert {shape.name for shape in chosen} <= {*rows} and all(rows[shape.name].verdict for shape in chosen)
    teacher = rows["teacher"]
    for shape in chosen:
        row = rows[shape.name]
        assert row.parameters == shape.parameters and row.flops == shape.flops
        assert row.bytes == pytest.approx(shape.bytes, rel=0.01) and row.bytes <= 0.8 * teacher.bytes


def test_a_second_search_and_its_plan_compute_nothing(
    first: RunResult, home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    recipe = search_recipe(tiny_bert, tiny_rows)
    assert {row["cache"] for row in plan_recipe(recipe, home=home, kind="search")} == {"hit"}
    _, found, lines = planned_search(recipe, home)
    assert first.search is not None
    assert [one.name for one in found.shapes] == [one.name for one in first.search.shapes]
    assert any("Trainings of shapes: 3 for 1 steps each, then 2 for 4 steps each." == line for line in lines)


@pytest.fixture(scope="module")
def supernet(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path) -> Recipe:
    """A teacher and trainings that are long enough for scores to differ."""
    longer = {**FAST, "steps": 60, "learning_rate": 3e-3}
    recipe = search_recipe(
        tiny_bert,
        tiny_rows,
        space={"layers": [1, 2], "width": [0.5, 1.0], "neurons": [0.5, 1.0]},
        ranking="supernet",
        supernet={"prediction": longer, "rows": 20},
        training={**longer, "signal": "teacher"},
    )
    return recipe.model_copy(update={"teacher": recipe.teacher.model_copy(update=longer)})


def test_a_dry_run_lists_a_supernet_before_its_fall_back(first: RunResult, supernet: Recipe, home: Home) -> None:
    """The latency table of this space is measured by a search in rounds; the supernet is not trained."""
    search = supernet.search
    assert search is not None
    rounds = search.model_copy(update={"ranking": "halving", "shapes": 1, "rounds": 1, "candidates": 1})
    run_recipe(supernet.model_copy(update={"search": rounds}), home=home, kind="search")
    _, found, lines = planned_search(supernet, home)
    assert isinstance(found, SearchResult) and found.fitting == 8
    assert "8 shapes fit, to be ranked in a supernet." in lines[0]
    assert lines[-2].startswith("Supernet: its training, 60 steps (of unknown cost); the scores")
    assert "8 shapes trained alone for 20 steps each (about " in lines[-2]
    assert lines[-1].endswith("If not, shapes are trained in rounds: 3 for 20 steps each, then 2 for 60 steps each.")


@pytest.mark.parametrize("trusted", [True, False])
def test_a_supernet_ranks_all_shapes_if_trainings_of_some_agree_and_else_rounds_do(
    trusted: bool, supernet: Recipe, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiny models have any tau; the border is moved to either side of it."""
    monkeypatch.setattr("flows.branches.search.supernet.TRUSTED", -1.0 if trusted else 1.1)
    monkeypatch.setattr("flows.branches.search.supernet.LEAST_ORDERED", 0.0)
    result = RunResult.model_validate(run_recipe(supernet, home=home, kind="search"))
    search = result.search
    assert search is not None and search.trusted == trusted and search.supernet_tau is not None
    assert (search.fitting, len(search.checked)) == (8, 8)
    chosen = [shape for shape in search.shapes if shape.state == "candidate"]
    models = {row.name for row in result.models}
    assert {entry.candidate for entry in result.registered} == {shape.name for shape in chosen}, "no untrained step"
    assert len(chosen) == 2 and {shape.name for shape in chosen} <= models
    if trusted:
        assert {f"{shape.name}-of-supernet" for shape in chosen} <= models, "they begin with their part of the supernet"
        assert all(shape.scores for shape in search.shapes) and search.rounds == (2,)
        best = max(float(shape.scores[0] or 0) for shape in search.shapes)
        assert chosen[0].scores[0] == best or chosen[1].scores[0] == best
    else:
        assert not any(name.endswith("-of-supernet") for name in models) and search.rounds == (3, 2)
        assert not any(stage.name.startswith("cut-supernet") for stage in result.stages)
    said = search_lines(search)
    assert any(("its ranking was followed" if trusted else "not to be trusted") in line for line in said)


def test_a_search_in_a_supernet_asked_again_computes_nothing(supernet: Recipe, home: Home) -> None:
    assert {row["cache"] for row in plan_recipe(supernet, home=home, kind="search")} == {"hit"}


def test_a_supernet_of_layers_that_share_weights_is_refused_before_anything_is_computed(
    supernet: Recipe, home: Home, tmp_path: Path
) -> None:
    """It was refused behind the latency table and the training of the teacher."""
    albert = supernet.teacher.model_copy(update={"model": str(write_tiny("albert", tmp_path / "albert"))})
    with pytest.raises(RecipeError, match="search.ranking: supernet drops layers one by one.*choose ranking: halving"):
        planned_search(supernet.model_copy(update={"teacher": albert}), home)
