"""The section ``search``: budgets with units and shares, and a sentence for each mistake."""

from __future__ import annotations

from typing import Any

import pytest

from flows.cli.sweep_options import budget_sets, minutes_sets
from flows.run.recipe_file import load_recipe
from tasks.errors import RecipeError
from tasks.recipe.makers.search import SearchBudget, ShapeSearch, budget_as_bound
from tasks.recipe.makers.supernets import SANDWICH_STEPS


@pytest.mark.parametrize(
    ("name", "given", "amount", "of_teacher"),
    [
        ("latency_ms", 2, 2.0, False),
        ("latency_ms", "500us", 0.5, False),
        ("latency_ms", "0.3x", 0.3, True),
        ("bytes", "10MB", 1e7, False),
        ("bytes", "10 MiB", 10 * 2.0**20, False),
        ("bytes", "30%", 0.3, True),
        ("flops", "1.5G", 1.5e9, False),
        ("joules", "10mJ", 0.01, False),
        ("memory", "1e6", 1e6, False),
    ],
)
def test_a_budget_is_an_amount_with_a_unit_or_a_share(name: str, given: Any, amount: float, of_teacher: bool) -> None:
    (bound,) = SearchBudget(**{name: given}).bounds()
    assert (bound.amount, bound.of_teacher) == (pytest.approx(amount), of_teacher)
    assert bound.criterion.at_most == bound.amount and bound.criterion.of_teacher == of_teacher


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"bytes": "10MW"}, "legal are a number, a number with B, kB"),
        ({"bytes": "10mb"}, "did you mean MB\\? legal are"),
        ({"bytes": 10}, "that is 10 bytes, which no model meets; give an amount with its unit, such as 10MB"),
        ({"flops": 500}, "that is 500 FLOPs, which no model meets; give an amount with its unit, such as 500M"),
        ({"latency_ms": "fast"}, "a share of the teacher's such as 0.3x or 30%"),
        ({"latency_ms": 0}, "which no model meets; give a positive amount"),
        ({"bytes": "1.5x"}, "more than the teacher's"),
        ({"speed": 2}, "Extra inputs"),
    ],
)
def test_a_wrong_budget_gets_a_sentence(budget: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SearchBudget(**budget)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"space": {"width": [0.5, 0.5]}}, "contain duplicates"),
        ({"strategy": "tops"}, "did you mean 'top'"),
        ({"seeds": [1, 1]}, "contain duplicates"),
    ],
)
def test_a_wrong_space_gets_a_sentence(section: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ShapeSearch.model_validate(section)


def test_a_search_needs_a_budget() -> None:
    with pytest.raises(ValueError, match="no budget; give at least one of latency_ms, bytes"):
        ShapeSearch().require_budget()


def test_options_become_settings() -> None:
    assert budget_sets(["latency_ms=2", "bytes=10MB"]) == [
        'search.budget.latency_ms="2"',
        'search.budget.bytes="10MB"',
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["latency=2"], "did you mean 'latency_ms'. legal are latency_ms, bytes, flops"),
        (["bytes"], "takes NAME=AMOUNT"),
        (["bytes=1MB", "bytes=2MB"], "given twice"),
    ],
)
def test_a_wrong_option_gets_a_sentence(given: list[str], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        budget_sets(given)


def test_a_part_of_a_training_leaves_the_rest_as_the_search_has_it() -> None:
    """Whoever asks for fewer steps gets the teacher's signal and its rate still."""
    search = ShapeSearch.model_validate({"training": {"steps": 600}, "supernet": {"prediction": {"batch_size": 8}}})
    assert search.training == ShapeSearch().training.model_copy(update={"steps": 600})
    assert (search.training.signal, search.training.learning_rate, search.training.dropout) == ("teacher", 1e-4, 0.0)
    assert search.supernet.prediction.steps == ShapeSearch().supernet.prediction.steps == SANDWICH_STEPS


def test_shapes_are_compared_by_evaluations() -> None:
    with pytest.raises(ValueError, match="evaluations"):
        ShapeSearch.model_validate({"training": {"evaluations": 0}})


def test_minutes_without_ways_to_try_are_refused_with_the_way_out() -> None:
    """The sentence was that search.recipes.shape is missing, which nobody had written."""
    with pytest.raises(RecipeError, match="--minutes is for ways to train one shape, and search has no section search"):
        minutes_sets(load_recipe("search"), 5)
    given = load_recipe("search", ["search.recipes.shape.layers=3", "search.budget={}"])
    assert minutes_sets(given, 5) == ["search.recipes.minutes=5"]


def test_budgets_are_told_in_whole_numbers() -> None:
    """10 MB was told as 1e+07."""
    assert str(budget_as_bound("bytes", "10MB")) == "bytes ≤ 10,000,000 bytes"
    assert str(budget_as_bound("latency_ms", "2.")) == "latency_ms ≤ 2 ms"
    assert str(budget_as_bound("latency_ms", "30%")) == "latency_ms ≤ 0.3 of the teacher"
