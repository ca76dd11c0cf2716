"""The decorator that turns a function into a cached stage, a Prefect task of its own."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from tasks.contracts import Artifact, StageInputs
from tasks.recipe.knobs import Knobs
from tasks.stage.keys import ENGINE_LIBRARIES, Body, StageSpec
from tasks.stage.planning import plan_stage
from tasks.stage.session import Session, current_session
from tasks.stage.task_ends import reported


def stage(
    *,
    makes: str,
    engine: str | None = None,
    module: str = "tasks.training",
    threads: Literal["single", "branch", "alone"] = "single",
    libraries: tuple[str, ...] = ENGINE_LIBRARIES,
    hardware: bool = False,
    distributed: bool = False,
) -> Callable[[Body], Callable[..., Awaitable[Artifact]]]:
    """Turn a function into a stage. Call it as ``await stage_task(knobs, name=artifact, …, label="shown")`` inside a
    run; it returns an artifact.

    ``makes`` is the kind of artifact; ``engine`` the job that the function starts, whose code is part of the key. The
    recipe sets the number of ``threads`` for stages that run in parallel with similar ones (``branch``) and for stages
    that others wait for (``alone``); ``single`` stages sum nothing over threads, use one, and have no thread count in
    their key. ``libraries`` have their versions in the key. ``hardware``: the key contains this very machine.
    ``distributed``: several processes may share its training.
    """

    def decorate(body: Body) -> Callable[..., Awaitable[Artifact]]:
        spec = StageSpec(
            body.__name__.replace("_", "-"), makes, body, engine, module, threads, libraries, hardware, distributed
        )

        @functools.cache
        def prefect_task() -> Any:
            return prefect_task_of(spec)

        @functools.wraps(body)
        async def call(knobs: Knobs, *, label: str = "", **artifacts: Artifact | list[Artifact] | None) -> Artifact:
            session = current_session()
            if session.planning:
                return await plan_stage(spec, session, knobs, label, artifacts)
            # Pass inputs as the states of the tasks that made them: Prefect draws the run graph's edges from states.
            state = await reported(
                prefect_task()(knobs, f"/{label}" if label else "", linked(session, artifacts), return_state=True)
            )
            artifact: Artifact = await state.aresult()
            session.made_by[artifact.task_run] = state
            return artifact

        vars(call)["spec"] = spec
        return call

    return decorate


def prefect_task_of(spec: StageSpec) -> Any:
    """Return the Prefect task of a stage. It is built on the first run of the stage, because a plan runs none and
    importing Prefect would take most of its time."""
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    from tasks.stage.making import run_stage

    @task(name=spec.name, task_run_name=spec.name + "{shown}", persist_result=False, cache_policy=NO_CACHE)
    async def stage_task(knobs: Knobs, shown: str, artifacts: StageInputs) -> Any:
        return await run_stage(spec, current_session(), knobs, shown.lstrip("/"), artifacts)

    return stage_task


def linked(session: Session, artifacts: StageInputs) -> dict[str, object]:
    """Replace artifacts by the states of the tasks that made them; Prefect turns them back before the task sees
    them."""
    return {
        name: [session.state_of(one) for one in given] if isinstance(given, list) else session.state_of(given)
        for name, given in artifacts.items()
    }
