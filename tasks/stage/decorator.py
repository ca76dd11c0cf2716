"""The decorator that makes a function a cached stage, a Prefect task of its own."""

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
    """Make a function a stage. It is called as ``await door(knobs, name=parcel, …, label="shown")`` inside a run, and
    returns a parcel.

    ``makes`` is the kind of parcel; ``engine`` the job that the function starts, whose code is part of the key. The
    recipe says how many ``threads`` a stage has that runs beside others like it (``branch``) or that others wait for
    (``alone``); ``single`` adds nothing up by threads. ``libraries`` have their versions in the key. ``hardware``: it
    is keyed by this very machine. ``together``: processes may share its training.
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
            # Inputs travel as the states of the tasks that made them: that is what draws the edges of the run graph.
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
    """Replace parcels by the states of the tasks that made them; Prefect turns them back before the task sees them."""
    return {
        name: [session.state_of(one) for one in given] if isinstance(given, list) else session.state_of(given)
        for name, given in parcels.items()
    }
