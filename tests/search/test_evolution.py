"""Which shapes of a large space are scored: a study is a pure function of its seed, and finds what counting finds."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.errors import RecipeError
from tasks.recipe.makers.search import Evolution
from tasks.recipe.recipe import Recipe
from tasks.report.tables.search import search_lines
from tasks.results.run import RunResult
from tasks.results.search import JudgedShape
from tasks.search import evolution
from tests.command_line import plan_recipe
from tests.flows.test_compress import FAST
from tests.search.test_search import search_recipe

optuna = pytest.importorskip("optuna", reason="optuna is not installed: pip install 'limbeck[search]'")


def shape(layers: int, width: float, neurons: float) -> JudgedShape:
    size = layers * (0.4 * width**2 + 0.6 * width * neurons)
    return JudgedShape(
        name=f"l{layers}-{width:g}-{neurons:g}", layers=layers, hidden=int(768 * width), heads=int(12 * width),
        feed_forward=int(3072 * neurons), width=width, neurons=neurons, vocabulary=1, pieces="whole", format="torch",
        ms=1 + size, bytes=int(1e6 * (30 * width + 7 * size)), flops=int(1e9 * size), parameters=1,
    )  # fmt: skip


SHARES = [number / 8 for number in range(1, 9)]
SPACE = [shape(*sizes) for sizes in product(range(1, 13), SHARES, SHARES)]
FITTING = [one for one in SPACE if one.ms <= 9.5]


def score(one: JudgedShape) -> float:
    """Return a score that width helps most and neurons least, so that the largest shape that fits is not the best."""
    return math.tanh(one.layers / 4) * (0.5 + 0.4 * float(one.width) + 0.1 * float(one.neurons))


def studied(seed: int, knobs: Evolution | None = None, generations: int = 8) -> list[list[str]]:
    """Return the names of the shapes that each generation asks for, with all of them scored."""
    knobs = knobs or Evolution()
    study, asked = evolution.ShapeStudy(FITTING, knobs, seed), []
    by_name = {one.name: one for one in FITTING}
    for _ in range(generations):
        asked.append([one.name for one in study.next_generation()])
        study.tell({name: score(by_name[name]) for name in asked[-1]})
    return asked


def test_a_space_of_more_than_five_hundred_shapes_is_searched_with_a_third_of_them() -> None:
    assert len(FITTING) > Evolution().above == 500
    asked = [name for generation in studied(0) for name in generation]
    assert len(asked) == len(set(asked)) <= 8 * 32 < len(FITTING) / 2, "none is scored twice"
    by_name = {one.name: one for one in FITTING}
    ranked = sorted((score(one) for one in FITTING), reverse=True)
    best = [max(score(by_name[name]) for generation in studied(seed) for name in generation) for seed in range(3)]
    assert min(best) >= ranked[len(ranked) // 50], "the best 2 % of all that fit, for three seeds"
    # So many shapes drawn at random would find one of those, too; they would not score as many of the best.
    good, found = {one.name for one in FITTING if score(one) >= ranked[25]}, 0
    for seed in range(3):
        found += len(good.intersection(name for generation in studied(seed) for name in generation))
    drawn = 3 * 8 * 32 * len(good) / len(FITTING)
    assert found > drawn, "more than all generations would find that are full and drawn at random"
    assert not {*asked} - {*by_name}, "no shape that does not fit is scored"


def test_two_studies_of_one_seed_ask_for_the_same_shapes_and_others_for_others() -> None:
    """A search that was stopped begins its study anew, and reads the scores of the generations that it had."""
    first = studied(7)
    assert studied(7) == first and studied(7, generations=3) == first[:3]
    assert studied(8) != first


def test_later_generations_follow_the_scores() -> None:
    """Scores of a generation decide what the others ask for; shapes drawn at random would score as the first."""
    by_name = {one.name: one for one in FITTING}
    means = [
        sum(score(by_name[name]) for name in generation) / len(generation) for generation in studied(1) if generation
    ]
    assert sum(means[-3:]) / 3 > means[0]
    knobs, answers = Evolution(population=8, generations=2), []
    for sign in (1, -1):
        study = evolution.ShapeStudy(FITTING, knobs, 0)
        first = study.next_generation()
        study.tell({one.name: sign * score(one) for one in first})
        answers.append([one.name for one in study.next_generation()])
    assert answers[0] != answers[1]


def test_without_optuna_a_large_space_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    evolution.require_optuna(501, 500)
    monkeypatch.setattr(evolution, "find_spec", lambda name: None)
    evolution.require_optuna(500, 500)
    with pytest.raises(RecipeError, match=r"501 shapes fit.*pip install 'limbeck\[search\]', name fewer sizes in"):
        evolution.require_optuna(501, 500)


@pytest.mark.slow
def test_a_supernet_scores_generations_of_a_large_space_and_a_second_search_computes_nothing(
    prefect_server: None, engines_here: None, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    home, training = Home(tmp_path / "home").create(), {**FAST, "steps": 8}
    recipe: Recipe = search_recipe(
        tiny_bert,
        tiny_rows,
        space={"layers": [1, 2, 3, 4], "width": [0.5, 1.0], "neurons": [0.5, 1.0]},
        budget={"flops": "1x"},
        ranking="supernet",
        evolution={"above": 8, "population": 4, "generations": 2},
        supernet={"prediction": training, "rows": 20},
        training={**training, "signal": "teacher"},
        candidates=1,
    )
    search = RunResult.model_validate(run_recipe(recipe, home=home, kind="search")).search
    assert search is not None and search.fitting == 16 and len(search.checked) == 8
    assert search.scored is not None and 8 <= search.scored < 16
    assert any(f"{search.scored} shapes of 16 were scored with" in line for line in search_lines(search))
    plan = plan_recipe(recipe, home=home, kind="search")
    assert {row["cache"] for row in plan} == {"hit"}
