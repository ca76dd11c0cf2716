"""The decorator that turns a function into a cached stage, a Prefect task of its own."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.contracts import Parcel
from tasks.recipe.knobs import Knobs
from tasks.stage.keys import ENGINE_LIBRARIES, Body, Frame
from tasks.stage.making import enter
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
    together: bool = False,
) -> Callable[[Body], Callable[..., Awaitable[Parcel]]]:
    """Turn a function into a stage. Call it as ``await door(knobs, name=parcel, …, label="shown")`` inside a run; it
    returns an artifact.

    ``makes`` is the kind of artifact; ``engine`` the job that the function starts, whose code is part of the key. The
    recipe sets the number of ``threads`` for stages that run in parallel with similar ones (``branch``) and for stages
    that others wait for (``alone``); ``single`` stages sum nothing over threads, use one, and have no thread count in
    their key. ``libraries`` have their versions in the key. ``hardware``: the key contains this very machine.
    ``together``: several processes may share its training.
    """

    def frame_it(body: Body) -> Callable[..., Awaitable[Parcel]]:
        frame = Frame(
            body.__name__.replace("_", "-"), makes, body, engine, module, threads, libraries, hardware, together
        )

        @task(name=frame.name, task_run_name=frame.name + "{shown}", persist_result=False, cache_policy=NO_CACHE)
        async def door(knobs: Knobs, shown: str, parcels: dict[str, Any]) -> Any:
            return await enter(frame, current_session(), knobs, shown.lstrip("/"), parcels)

        @functools.wraps(body)
        async def call(knobs: Knobs, *, label: str = "", **parcels: Any) -> Parcel:
            session = current_session()
            if session.planning:
                return await plan_stage(frame, session, knobs, label, parcels)
            # Pass inputs as the states of the tasks that made them: Prefect draws the run graph's edges from states.
            state = await reported(
                door(knobs, f"/{label}" if label else "", linked(session, parcels), return_state=True)  # type: ignore[arg-type]
            )
            parcel: Parcel = await state.aresult()
            session.made_by[parcel.task_run] = state
            return parcel

        vars(call)["frame"] = frame
        return call

    return frame_it


def linked(session: Session, parcels: Mapping[str, Any]) -> dict[str, Any]:
    """Replace artifacts by the states of the tasks that made them; Prefect turns them back before the task sees
    them."""
    return {
        name: [session.state_of(one) for one in given] if isinstance(given, list) else session.state_of(given)
        for name, given in parcels.items()
    }
