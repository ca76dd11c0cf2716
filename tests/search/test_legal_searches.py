"""What a search refuses before anything is measured, and how the shapes that it chooses become candidates: compared by
one metric, on inputs of one length, and beside the recipe's own in the same formats."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from flows.branches.search import rounds
from flows.branches.search.shapes import candidates_by_hand, of_a_search, with_candidates
from flows.run.recipe_file import load_recipe
from tasks.errors import RecipeError
from tasks.recipe.makers.search import ShapeSearch
from tasks.recipe.makers.shrinking import NarrowedCandidate, PrunedCandidate, TrimmedCandidate
from tasks.results.search import JudgedShape, SearchResult
from tasks.search.chains import chain_of_shape
from tasks.search.ranking import rounds_of


def shape(name: str, ms: float = 1.0, size: float = 1e7, **named: Any) -> JudgedShape:
    """Return a shape of a teacher of 6 x 384."""
    given: dict[str, Any] = {"layers": 3, "hidden": 384, "heads": 12, "feed_forward": 1536, "width": 1.0}
    given |= {"neurons": 1.0, "vocabulary": 30522, "pieces": "whole", "format": "torch", "flops": int(1e6 * ms)}
    return JudgedShape(name=name, ms=ms, bytes=int(size), parameters=1, **(given | named))


@pytest.mark.parametrize(
    ("recipe", "sets", "said"),
    [
        ("search-10mb", ["teacher.choose_by=matthews"], "a difference of two metrics"),
        ("search", ["search.budget={memory: 0.5x}", "search.space.formats=[int8]"], "no graph of the teacher"),
        ("search", ["search.training.choose_by=f1"], r"by accuracy and search\.training by f1"),
    ],
)
def test_what_could_not_be_compared_is_refused_before_anything_is_measured(
    recipe: str, sets: list[str], said: str
) -> None:
    of_a_search(load_recipe(recipe, ["search.budget={bytes: 50MB}"], ["search"]))
    with pytest.raises(RecipeError, match=said):
        of_a_search(load_recipe(recipe, ["search.budget={bytes: 50MB}", *sets], ["search"]))


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["search.supernet.prediction.patience={}"], "a supernet compares all hidden states already"),
        (["search.ranking=supernet", "search.training.measured_tokens=5000"], "not known to a supernet"),
    ],
)
def test_what_a_supernet_cannot_follow_is_refused_with_the_recipe(sets: list[str], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        load_recipe("search", sets, ["search"])


def test_all_shapes_of_a_search_are_scored_on_inputs_of_one_length() -> None:
    search = ShapeSearch.model_validate({"budget": {"latency_ms": 2}, "training": {"max_length": 256}})
    smaller = shape("l3-w0.5-f768-v8000", pieces="8000", vocabulary=8000, width=0.5, neurons=0.5)
    chain = chain_of_shape(smaller, search, search.training, 6, (0,))
    lengths = [one.max_length for one in chain if isinstance(one, NarrowedCandidate | PrunedCandidate)]
    trained, trimmed = chain[-2:]
    assert isinstance(trimmed, TrimmedCandidate)
    trainings = [training.max_length for training in trained.trainings.values()]
    assert [*lengths, *trainings, trimmed.max_length] == [256, 256, 256, 256]


def test_candidates_by_hand_have_graphs_in_the_formats_of_the_shapes() -> None:
    recipe = of_a_search(load_recipe("search", ["search.budget={bytes: 50MB}", "search.space.formats=[int8]"]))
    by_hand, search = candidates_by_hand(recipe), recipe.search
    assert by_hand and recipe.exports is None and search is not None
    shared: Any = SimpleNamespace(layers=6)
    found = with_candidates(recipe, search, [shape("l3", format="int8")], shared, of_supernet=False)
    assert found.exports is not None
    assert found.exports.of == (*by_hand, "l3") and "int8" in found.exports.formats


def test_shapes_much_like_a_better_one_take_no_place_in_any_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six that cost much the same are the best, before ten that differ: five that differ are trained fully."""
    alike = [shape(f"a{number}", 2 - 0.01 * number, 1e7 - 2e4 * number) for number in range(6)]
    others = [shape(f"b{number}", 1.7 - 0.15 * number, 9e6 - 6e5 * number) for number in range(10)]
    shapes = (*alike, *others)
    places = {one.name: number for number, one in enumerate(shapes)}

    async def scores(_: Any, __: Any, going: list[JudgedShape], *___: Any) -> list[float]:
        return [0.9 - 0.001 * places[one.name] for one in going]

    monkeypatch.setattr(rounds, "scores_of_round", scores)
    search = ShapeSearch.model_validate({"budget": {"latency_ms": 2}})
    result = SearchResult(scored_by="accuracy", budgets=(), points=16, fitting=16, shapes=shapes)
    recipe: Any = None
    sizes = rounds_of(16, search.candidates, search.rounds)
    judged = asyncio.run(rounds.train_in_rounds(recipe, search, result, sizes, recipe))
    assert judged is not None
    chosen = [one.name for one in judged if one.state == "candidate"]
    assert chosen == ["a0", "b0", "b1", "b2", "b3"]
    assert {one.name for one in judged if one.state == "too much alike"} == {f"a{number}" for number in range(1, 6)}
