"""Whether a run's stages are made elsewhere, as the environment says, and what becomes of them when the run does not
come to its end."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from prefect.exceptions import TerminationSignal

from flows.home import Home
from flows.run.stopping import ONLOOKER
from tasks.errors import RecipeError
from tasks.ports.machine import CLASS
from tasks.ports.store.open import whole_address
from tasks.recipe.recipe import Recipe
from tasks.stage.remote import FLOW, GRACE, Dispatcher

CUT_OFF = (asyncio.CancelledError, KeyboardInterrupt, TerminationSignal)
"""What reaches a run from outside; anything else is a failure of its own."""


def new_dispatcher() -> Dispatcher | None:
    """Return who has stages made elsewhere: workers of the deployment that ``LIMBECK_DISPATCH`` names; None where it
    names none."""
    deployment = os.environ.get("LIMBECK_DISPATCH", "").strip()
    if not deployment:
        return None
    if not re.fullmatch(rf"{FLOW}/[\w .-]+", deployment):
        raise RecipeError(
            f"LIMBECK_DISPATCH is {deployment!r}; name a deployment of the flow {FLOW!r}, for example {FLOW}/gpu, "
            f"or leave it out"
        )
    device = os.environ.get("LIMBECK_DISPATCH_DEVICE", "").strip()
    if not re.fullmatch(CLASS, device):
        said = f"is {device!r}" if device else "is not set, and LIMBECK_DISPATCH is"
        raise RecipeError(
            f"LIMBECK_DISPATCH_DEVICE {said}; set it to the class of the pool's workers, for example cuda-a10g or "
            "cpu-avx512-intel: on a worker, python -m tasks.ports.machine prints it"
        )
    return Dispatcher(deployment, device, grace=grace())


def grace() -> float:
    """Return the seconds in which a crashed stage may be started again before a run gives it up."""
    given = os.environ.get("LIMBECK_DISPATCH_GRACE", f"{GRACE:g}")
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", given):
        raise RecipeError(
            f"LIMBECK_DISPATCH_GRACE is {given!r}; set it to seconds, for example {GRACE:g}, or leave it out"
        )
    return float(given)


def gpu_limit() -> str:
    """Return the global concurrency limit that stages for a GPU take slots of: what ``LIMBECK_GPU_LIMIT`` names, or
    none."""
    given = os.environ.get("LIMBECK_GPU_LIMIT", "").strip()
    if re.search(r"[/%&><]", given):
        raise RecipeError(
            f"LIMBECK_GPU_LIMIT is {given!r}; name a global concurrency limit of the Prefect server, for example "
            f"gpu, or leave it out"
        )
    return given


def processes_of_worker() -> int:
    """Return how many processes share a training: ``LIMBECK_PROCESSES``, the number of GPUs where it is made."""
    given = os.environ.get("LIMBECK_PROCESSES", "1")
    if not given.isdecimal() or not 1 <= int(given) <= 64:
        raise RecipeError(
            f"LIMBECK_PROCESSES is {given!r}; set it to the number of GPUs of this worker, 1 to 64, or leave it out"
        )
    return int(given)


async def ready_dispatcher(recipe: Recipe, home: Home) -> Dispatcher | None:
    """Return who has the stages of this run made elsewhere, after asking whether that can be."""
    from prefect.runtime import flow_run

    dispatcher = new_dispatcher()
    if dispatcher is not None:
        dispatcher.terms, dispatcher.asker = terms_of(recipe, home), str(flow_run.id or "")
        await dispatcher.require()
    return dispatcher


def terms_of(recipe: Recipe, home: Home) -> Mapping[str, Any]:
    """Return what every order of a run says: a budget stays with the run, which watches it."""
    costs = recipe.costs.model_dump(mode="json", exclude_unset=True)
    costs.pop("budget", None)
    return {
        "store": whole_address(home.store),
        "own_folder": "LIMBECK_STORE" not in os.environ,
        "costs": costs,
        "cores": recipe.resources.cores,
        "threads": recipe.resources.threads,
        "threads_alone": recipe.resources.threads_alone,
        "processes": processes_of_worker(),
    }


async def settle(dispatcher: Dispatcher | None, error: BaseException) -> None:
    """Cancel what a run asked for when it has failed, or a person stopped it. One that only moves to another worker, or
    was cut off, will find it again."""
    if (
        dispatcher is not None
        and dispatcher.under_way
        and (not isinstance(error, CUT_OFF) or ONLOOKER.get() is not None or await is_cancelled())
    ):
        await dispatcher.withdraw()


async def is_cancelled() -> bool:
    """Tell whether somebody cancelled this flow run; where the server does not say, nobody did."""
    from prefect.client.orchestration import get_client
    from prefect.runtime import flow_run

    try:
        async with get_client() as client:
            state = (await client.read_flow_run(UUID(str(flow_run.id)))).state
    except Exception:
        return False
    return state is not None and (state.is_cancelling() or state.is_cancelled())
