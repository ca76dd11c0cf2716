"""Remote execution of a run's stages, as configured by the environment, and their cancellation if the run does not
finish."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from flows.home import Home
from flows.run.stopping import RUN_OPTIONS, is_termination
from tasks.errors import RecipeError
from tasks.ports.machine import CLASS
from tasks.ports.store.open import whole_address
from tasks.recipe.recipe import Recipe
from tasks.stage.remote import FLOW, GRACE, Dispatcher


def new_dispatcher() -> Dispatcher | None:
    """Return a dispatcher that runs stages on workers of the deployment in ``LIMBECK_DISPATCH``; None if that is not
    set."""
    deployment = os.environ.get("LIMBECK_DISPATCH", "").strip()
    if not deployment:
        return None
    if not re.fullmatch(rf"{FLOW}/[\w .-]+", deployment):
        raise RecipeError(
            f"LIMBECK_DISPATCH is {deployment!r}; name a deployment of the flow {FLOW!r}, for example {FLOW}/gpu, or "
            f"unset it"
        )
    device = os.environ.get("LIMBECK_DISPATCH_DEVICE", "").strip()
    if not re.fullmatch(CLASS, device):
        said = f"is {device!r}" if device else "is not set, and LIMBECK_DISPATCH is"
        raise RecipeError(
            f"LIMBECK_DISPATCH_DEVICE {said}; set it to the device class of the pool's workers, for example "
            f"cuda-a10g or cpu-avx512-intel: python -m tasks.ports.machine on a worker prints it"
        )
    return Dispatcher(deployment, device, grace=grace())


def grace() -> float:
    """Return the seconds that a run waits for the restart of a crashed stage before it gives the stage up."""
    given = os.environ.get("LIMBECK_DISPATCH_GRACE", f"{GRACE:g}")
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", given):
        raise RecipeError(f"LIMBECK_DISPATCH_GRACE is {given!r}; set it to seconds, for example {GRACE:g}, or unset it")
    return float(given)


def gpu_limit() -> str:
    """Return the name of the global concurrency limit for GPU stages: ``LIMBECK_GPU_LIMIT``, or an empty string."""
    given = os.environ.get("LIMBECK_GPU_LIMIT", "").strip()
    if re.search(r"[/%&><]", given):
        raise RecipeError(
            f"LIMBECK_GPU_LIMIT is {given!r}; name a global concurrency limit of the Prefect server, for example "
            f"gpu, or unset it"
        )
    return given


def processes_of_worker() -> int:
    """Return the number of processes of one training: ``LIMBECK_PROCESSES``, the number of the worker's GPUs."""
    given = os.environ.get("LIMBECK_PROCESSES", "1")
    if not given.isdecimal() or not 1 <= int(given) <= 64:
        raise RecipeError(
            f"LIMBECK_PROCESSES is {given!r}; set it to the number of GPUs of this worker, 1 to 64, or unset it"
        )
    return int(given)


async def ready_dispatcher(recipe: Recipe, home: Home) -> Dispatcher | None:
    """Return the dispatcher of this run after a check that it can work, or None."""
    from prefect.runtime import flow_run

    dispatcher = new_dispatcher()
    if dispatcher is not None:
        dispatcher.terms, dispatcher.asker = terms_of(recipe, home), str(flow_run.id or "")
        await dispatcher.require()
    return dispatcher


def terms_of(recipe: Recipe, home: Home) -> Mapping[str, Any]:
    """Return the fields that all orders of a run share, without the budget, which the run itself watches."""
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


async def cancel_remote_stages(dispatcher: Dispatcher | None, error: BaseException) -> None:
    """Cancel the remote stages of a run that failed or that a person stopped. A run that moves to another worker, or
    was cut off, finds them again."""
    if (
        dispatcher is not None
        and dispatcher.under_way
        and (not is_cut_off(error) or RUN_OPTIONS.get() is not None or await is_cancelled())
    ):
        await dispatcher.withdraw()


def is_cut_off(error: BaseException) -> bool:
    """Return whether an exception ends a run from outside; all others are failures of the run."""
    return isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)) or is_termination(error)


async def is_cancelled() -> bool:
    """Return whether this flow run was cancelled; False if the server does not answer."""
    from prefect.client.orchestration import get_client
    from prefect.runtime import flow_run

    try:
        async with get_client() as client:
            state = (await client.read_flow_run(UUID(str(flow_run.id)))).state
    except Exception:
        return False
    return state is not None and (state.is_cancelling() or state.is_cancelled())
