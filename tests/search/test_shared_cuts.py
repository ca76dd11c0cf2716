"""What rounds of a search share: a cut that several make alike is one candidate, planned and verified once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flows.branches.candidate import Candidate, SharedArtifacts
from flows.branches.makers import all_candidates
from flows.branches.search.found import trained_briefly
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.recipe import Recipe
from tasks.search.chains import chain_of_shape
from tasks.search.space import fitting_shapes
from tests.search.test_space import WHOLE, search_of, table

RECIPE = Recipe.model_validate(
    {"name": "x", "task": "sst2", "gate": {"split": "validation"}, "search": {"budget": {"bytes": "1x"}}}
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the candidates that are made, in order."""
    names: list[str] = []

    async def one(recipe: Any, planned: CandidateKnobs, shared: SharedArtifacts) -> Candidate:
        if planned.is_follower:
            await shared.made[planned.made_from]
        names.append(planned.name)
        return Candidate(planned.name, planned.planned_role, [])

    monkeypatch.setattr("flows.branches.makers.one_candidate", one)
    return names


def chain(end: str) -> list[CandidateKnobs]:
    """Return the chain of one shape, half as wide and with half of the neurons, in a round."""
    search = search_of(budget={"bytes": "1x"}, space={"layers": [2], "width": [0.5], "neurons": [0.5]})
    (shape,) = fitting_shapes(search, table("torch"), [WHOLE], None)
    return list(chain_of_shape(shape, search, search.training, 4, (0,), end))


def artifacts() -> SharedArtifacts:
    nothing: Any = None
    return SharedArtifacts(rows=nothing, base=nothing, teacher=nothing)


def test_what_is_cut_alike_in_several_rounds_is_made_once(made: list[str]) -> None:
    """Each round, and the final one, planned and verified all cuts again."""

    async def search() -> list[Candidate]:
        shared = artifacts()
        await trained_briefly(RECIPE, chain(".r1"), shared)
        await trained_briefly(RECIPE, chain(".r2"), shared)
        return await all_candidates(RECIPE.model_copy(update={"candidates": tuple(chain("")), "students": ()}), shared)

    found = asyncio.run(search())
    assert made == ["w32", "w32-f128", "l2-w32-f128.r1", "l2-w32-f128.r2", "l2-w32-f128"]
    assert [one.name for one in found] == ["w32", "w32-f128", "l2-w32-f128"], "all are part of each answer"


def test_what_differs_or_is_made_from_something_else_is_made_anew(made: list[str]) -> None:
    first, second, last = chain("")
    other = first.model_copy(update={"seeds": (1,)})

    async def search() -> None:
        shared = artifacts()
        await trained_briefly(RECIPE, [first, second, last], shared)
        await trained_briefly(RECIPE, [other], shared)
        await trained_briefly(RECIPE, [other, second, last], shared)
        await trained_briefly(RECIPE, [last, second, other], shared)

    asyncio.run(search())
    once = [first.name, second.name, last.name]
    assert made == [*once, other.name, second.name, last.name, *made[6:]], "its followers had another beginning"
    assert other.name not in made[6:], "what is made from what a recipe names later is made again, and it is not"
