"""Ways to train one shape: names, candidates, what the minutes allow, and a whole search over recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.branches.search.shapes import of_a_search
from flows.cli.runner import planned_search, run_recipe
from flows.home import Home
from tasks.errors import ModelError, RecipeError
from tasks.recipe.distillation import TaskDistillation
from tasks.recipe.makers.search import ShapeSearch
from tasks.recipe.makers.trials import RecipeTrials, Trial
from tasks.recipe.recipe import Recipe
from tasks.report.tables.trials import trials_lines, trials_section
from tasks.results.run import RunResult
from tasks.results.trials import TrialsResult
from tasks.search.trials import (
    PhaseSeconds,
    candidate_of_trial,
    fits_first_round,
    in_order_of_trial,
    next_round,
    steps_of_rounds,
    tried_recipe,
)
from tests.command_line import plan_recipe
from tests.flows.test_compress import FAST

SECTION = TaskDistillation.model_validate({"intermediate": {"batch_size": 8}, "prediction": {"batch_size": 8}})


def trials_with(**knobs: Any) -> RecipeTrials:
    return RecipeTrials.model_validate({"shape": {"layers": 2}, **knobs})


def test_every_way_has_a_name_that_a_registry_takes() -> None:
    names = [one.name for one in trials_with(learning_rates=[1.2e-4, 1e-4, 0.05]).all_trials]
    assert names[:3] == ["teacher-answers-12e-5", "teacher-answers-1e-4", "teacher-answers-5e-2"]
    assert len(set(names)) == 27 and not any(sign in name for name in names for sign in "./:% ")


def test_augmented_rows_are_a_choice_but_for_labels_alone() -> None:
    trials = trials_with(methods=["layers", "labels"], starts=["teacher"], augmentation=[False, True])
    assert [one.name for one in trials.all_trials if one.learning_rate == 5e-5] == [
        "teacher-layers-5e-5",
        "teacher-layers-5e-5-augmented",
        "teacher-labels-5e-5",
    ]
    plain, augmented = (candidate_of_trial(one, trials, SECTION, 90, (0,)) for one in trials.all_trials[:2])
    assert augmented.stages == ("augmentation", "intermediate")
    assert augmented.model_copy(update={"name": plain.name, "stages": plain.stages}) == plain
    assert trials_section(TrialsResult(minutes=1, trials=(tried_recipe(trials.all_trials[1]),))).rows[0][2] == (
        "layers, augmented rows"
    )


def test_all_ways_take_as_many_steps_and_vary_one_thing() -> None:
    trials = trials_with(steps=90)
    answers, layers, labels = (
        candidate_of_trial(Trial("teacher", method, 1e-4), trials, SECTION, 90, (0, 1))
        for method in ("answers", "layers", "labels")
    )
    assert answers.prediction is not None and layers.prediction is not None and layers.intermediate is not None
    assert answers.prediction.steps == 90 and (layers.intermediate.steps, layers.prediction.steps) == (45, 45)
    assert answers.stages == () and layers.stages == ("intermediate",) and layers.intermediate.batch_size == 8
    assert (labels.signal, labels.stages, answers.signal) == ("labels", (), "teacher")
    assert layers.prediction.model_copy(update={"steps": 90}) == answers.prediction == labels.prediction


def test_the_first_ways_are_the_first_choices_and_the_others_are_mixed() -> None:
    trials = trials_with()
    order = in_order_of_trial(trials)
    assert order[0] == trials.all_trials[0] and sorted(order) == sorted(trials.all_trials)
    assert order == in_order_of_trial(trials) != in_order_of_trial(trials_with(seed=1))
    assert {one.start for one in order[:6]} == {"teacher", "contribution", "random"}


def test_rounds_and_minutes_bound_what_is_tried() -> None:
    trials = trials_with(minutes=2, steps=600)
    assert steps_of_rounds(trials) == [66, 200, 600]
    ranked = [tried_recipe(one) for one in trials.all_trials[:9]]
    assert next_round(ranked, trials, 0.0, [1.0] * 9, is_last=False) == 3
    assert next_round(ranked, trials, 90.0, [8.0] * 9, is_last=False) == 1, "30 seconds are left, and one takes 24"
    assert next_round(ranked, trials, 1e6, [8.0] * 9, is_last=False) == 1, "a candidate is made in any case"
    assert next_round(ranked, trials, 0.0, [1.0] * 9, is_last=True) == 1


def test_each_way_takes_the_seconds_of_its_own_method() -> None:
    """All were taken to cost as much as the first one, whose method is the cheapest: the minutes were spent
    several times over."""
    trials = trials_with(minutes=2, steps=600)
    answers, layers, relations = (Trial("teacher", method, 1e-4) for method in ("answers", "layers", "relations"))
    took = {("answers", False): PhaseSeconds(0.0, 5.0), ("layers", False): PhaseSeconds(0.0, 40.0)}
    assert fits_first_round(answers, [], {}, trials), "as many as there are candidates, in any case"
    assert fits_first_round(layers, [answers, answers, answers], took, trials), "15 seconds of a minute are spent"
    assert not fits_first_round(layers, [answers, layers], took, trials), "15 are left, and one takes 40"
    assert fits_first_round(answers, [answers, layers], took, trials)
    assert fits_first_round(relations, [answers, layers], took, trials), "nobody knows how long it takes"
    assert not fits_first_round(relations, [answers] * 4 + [layers], took, trials)
    augmented = answers._replace(augmented=True)
    assert not fits_first_round(augmented, [answers, layers], {**took, augmented.cost: PhaseSeconds(0.0, 20.0)}, trials)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"starts": ["teacher", "teacher"]}, "starts .* contain duplicates"),
        ({"starts": ["teachers"]}, "did you mean 'teacher'"),
        ({"methods": ["layer"]}, "Input should be"),
        ({"augmentation": [True], "methods": ["labels"]}, "which reads rows as they are; add false"),
        ({"rounds": 1}, "greater than or equal to 2"),
    ],
)
def test_a_wrong_choice_is_refused(knobs: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        trials_with(**knobs)


def recipe_with(source: Path, model: Path, **search: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "ways",
            "task": {"name": "tiny", "text": "text", "metrics": ["accuracy"]},
            "data": {"source": str(source), "selection_rows": 20, "holdout_rows": 30},
            "teacher": {"model": str(model), "floor": 0.0, **FAST},
            "task_distillation": {"intermediate": FAST, "prediction": FAST},
            "search": {
                "recipes": {
                    "shape": {"layers": 2},
                    "starts": ["teacher", "random"],
                    "methods": ["answers", "layers"],
                    "learning_rates": [1e-3],
                    "steps": 12,
                    "rounds": 2,
                    "seeds": [0, 1],
                },
                **search,
            },
            "scoring": {"resamples": 100, "max_length": 16},
            "speed": {"repeats": 5, "warmup": 1, "seconds": 0.02, "length": 8},
            "gate": {"criteria": [{"metric": "retained", "at_least": 0.1}]},
            "resources": {"cores": 4, "threads_alone": 1},
        }
    )


def test_a_budget_beside_trials_and_missing_rows_are_refused(tmp_path: Path) -> None:
    both = recipe_with(tmp_path, tmp_path, budget={"bytes": "0.5x"})
    with pytest.raises(RecipeError, match="search has a budget, which is for shapes, and recipes"):
        of_a_search(both)
    plain = recipe_with(tmp_path, tmp_path)
    without = plain.model_copy(update={"data": plain.data.model_copy(update={"selection_rows": 0})})
    with pytest.raises(RecipeError, match="data.selection_rows is 0"):
        of_a_search(without)


def test_ways_that_a_recipe_cannot_hold_are_refused_in_one_sentence(tmp_path: Path) -> None:
    recipe = recipe_with(tmp_path, tmp_path)
    search = recipe.search
    assert search is not None
    wrong = search.model_copy(update={"recipes": trials_with(methods=["replacing"], starts=["random"])})
    with pytest.raises(RecipeError, match="search.recipes: student random-replacing-5e-5 replaces") as raised:
        of_a_search(recipe.model_copy(update={"search": wrong}))
    assert "pydantic" not in str(raised.value) and "\n" not in str(raised.value)
    wrong = search.model_copy(update={"recipes": trials_with(augmentation=[True, False])})
    with pytest.raises(RecipeError, match=r"uses the stages \['augmentation'\], which the recipe does not have"):
        of_a_search(recipe.model_copy(update={"search": wrong}))


def test_a_shape_deeper_than_its_teacher_is_refused_before_anything_runs(
    tmp_path: Path, tiny_bert: Path, tiny_rows: Path
) -> None:
    recipe = recipe_with(tiny_rows, tiny_bert, recipes={"shape": {"layers": 9}})
    with pytest.raises(RecipeError, match="shape has 9 layers, and the teacher has 4; give it at most as many"):
        planned_search(recipe, Home(tmp_path / "home").create())


@pytest.mark.parametrize(
    ("shape", "starts", "said"),
    [
        (
            {"layers": 2, "hidden": 32},
            ["random", "teacher"],
            "teacher-answers-1e-3 is wider .32. than its teacher",
        ),
        ({"layers": 1}, ["teacher", "alternate-odd"], "alternate-odd cannot drop 3 of 4 layers"),
    ],
)
def test_a_way_that_cannot_be_built_is_refused_before_the_first_one_is_trained(
    shape: dict[str, Any], starts: list[str], said: str, tmp_path: Path, tiny_bert: Path, tiny_rows: Path
) -> None:
    """It was refused by its own training, behind those of the ways before it."""
    trials = {"shape": shape, "starts": starts, "methods": ["answers"], "learning_rates": [1e-3]}
    recipe = recipe_with(tiny_rows, tiny_bert, recipes=trials)
    with pytest.raises((ModelError, RecipeError), match=said):
        planned_search(recipe, Home(tmp_path / "home").create())


def test_layers_that_a_strategy_cannot_leave_are_refused_before_anything_is_measured(
    tmp_path: Path, tiny_bert: Path, tiny_rows: Path
) -> None:
    """A search over shapes was stopped by it behind the latency table and the training of the teacher."""
    recipe = recipe_with(tiny_rows, tiny_bert)
    search = ShapeSearch.model_validate({"budget": {"bytes": "0.5x"}, "strategy": "alternate-odd"})
    with pytest.raises(RecipeError, match=r"alternate-odd cannot leave 1 of 4 layers; set search.space.layers: \[2, 3"):
        planned_search(recipe.model_copy(update={"search": search}), Home(tmp_path / "home").create())


@pytest.mark.slow
def test_ways_are_tried_in_rounds_and_the_best_is_a_candidate(
    prefect_server: None, engines_here: None, tmp_path: Path, tiny_bert: Path, tiny_rows: Path
) -> None:
    home, recipe = Home(tmp_path / "home").create(), recipe_with(tiny_rows, tiny_bert)
    result = RunResult.model_validate(run_recipe(recipe, home=home, kind="search"))
    found = result.trials
    assert found is not None and found.steps == (4, 12) and result.search is None
    states = [(one.state, len(one.scores)) for one in found.trials]
    assert states == [("candidate", 2), *[("left out", 1)] * 3]
    assert found.spent > 0 and all(one.seconds > 0 for one in found.trials)
    best = max(float(one.scores[0] or 0) for one in found.trials)
    assert found.trials[0].scores[0] == best
    rows = {row.name: row for row in result.models}
    assert set(rows) == {"teacher", found.trials[0].name} and rows[found.trials[0].name].seeds == (0, 1)
    assert {row["cache"] for row in plan_recipe(recipe, home=home, kind="search")} == {"hit"}
    _, again, lines = planned_search(recipe, home)
    assert [one.name for one in again.trials] == [one.name for one in found.trials]
    assert lines == trials_lines(again) and "4 ways to train the shape, tried in rounds of 4, then 12 steps" in lines[0]
    section = trials_section(found)
    assert section is not None and len(section.rows) == 4 and section.rows[0][-1] == "candidate"
