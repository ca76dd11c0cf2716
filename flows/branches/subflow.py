"""Sub-flows: parts of a run that Prefect draws on pages of their own, so that the page of a large run can be read.

A page of more than some dozens of tasks is a tangle of lines. A run with few trainings is one page. In a larger run
each candidate is a sub-flow, and so are the exports, the scores, the comparisons and the speeds; stages that several
branches use stay on the run's own page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from pydantic import JsonValue

from tasks.contracts import Artifact
from tasks.recipe.recipe import Recipe
from tasks.stage.session import Session, current_session

TRAININGS_ON_A_PAGE = 24
"""Checkpoints of candidates up to which a run is one page: about a hundred stages."""
BRANCH = "branch"
"""The name of the flow of branches."""
OfBranch = TypeVar("OfBranch")


def has_branches(recipe: Recipe) -> bool:
    """Return whether the parts of a run are sub-flows."""
    return sum(len(one.planned_seeds) for one in recipe.planned) > TRAININGS_ON_A_PAGE


async def in_branch(
    recipe: Recipe,
    name: str,
    body: Callable[[], Awaitable[OfBranch]],
    after: Sequence[Artifact] = (),
    about: Mapping[str, JsonValue] = MappingProxyType({}),
) -> OfBranch:
    """Run a part of a run, as a sub-flow if the run is a large one."""
    return await (as_page(name, body, after, about) if has_branches(recipe) else body())


async def as_page(
    name: str,
    body: Callable[[], Awaitable[OfBranch]],
    after: Sequence[Artifact],
    about: Mapping[str, JsonValue],
) -> OfBranch:
    """Run a part of a large run on a page of its own."""
    return await in_subflow(current_session(), BRANCH, name, body, after, about)


async def in_subflow(
    session: Session,
    flow_name: str,
    name: str,
    body: Callable[[], Awaitable[OfBranch]],
    after: Sequence[Artifact],
    about: Mapping[str, JsonValue],
) -> OfBranch:
    """Run a part of a run as a Prefect subflow, drawn after the tasks that some artifacts came from; a plan has no
    flow, and calls the body directly. ``about`` is shown as the subflow's parameters."""
    if session.planning:
        return await body()
    from prefect import flow

    made: list[OfBranch] = []

    @flow(name=flow_name, flow_run_name=name, validate_parameters=False)
    async def run_branch(about: dict[str, JsonValue]) -> None:
        made.append(await body())  # returned, it would be a result that Prefect may store

    await run_branch(dict(about), wait_for=[session.state_of(one) for one in after])  # type: ignore[call-overload]
    return made[0]
