"""Remote execution of a run's stages, as configured by the environment, and their cancellation if the run does not
finish."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from uuid import UUID

from flows.home import Home
from flows.run.stopping import RUN_OPTIONS, is_termination
from flows.servers.watch import SERVER
from tasks.errors import DispatchError, RecipeError
from tasks.ports.machine import CLASS
from tasks.ports.store.open import whole_address
from tasks.ports.work_pools import device_of
from tasks.recipe.recipe import Recipe
from tasks.stage.orders import OrderTerms
from tasks.stage.remote import AWAY, FLOW, GRACE, Dispatcher

USUAL_DEPLOYMENT = f"{FLOW}/gpu"
"""The deployment that `limbeck deploy` creates for the stages on GPU workers."""
CONTAINERS_PATIENCE = 900.0
"""Seconds for which a run waits for the worker that starts containers: a service replaces a dead one in minutes, and
the run itself, a container too, has no GPU."""
STARTED_WITHIN = 300.0
"""Seconds in which a worker starts the process of a flow run that it has taken."""
NOWHERE = "none"
"""The value of ``LIMBECK_DISPATCH`` that keeps all stages in the run."""
LIMIT = "gpu"
"""The global concurrency limit that `limbeck deploy` creates."""


@dataclass(frozen=True)
class Placement:
    """The place of a run's stages that run models: the workers of a dispatcher, or the run itself."""

    dispatcher: Dispatcher | None
    words: str
    """One sentence about it, for the plan and the log; empty if there is no Prefect server that could have a pool."""


async def find_placement(recipe: Recipe, away: float = AWAY) -> Placement:
    """Find out where stages that run models are computed: as the environment says, else in the GPU pool that was
    deployed on this Prefect server. The server may be unavailable for ``away`` seconds."""
    named = os.environ.get("LIMBECK_DISPATCH", "").strip()
    if named and named != NOWHERE and not re.fullmatch(rf"{FLOW}/[\w .-]+", named):
        raise RecipeError(
            f"LIMBECK_DISPATCH is {named!r}; name a deployment of the flow {FLOW!r}, for example "
            f"{USUAL_DEPLOYMENT}, write {NOWHERE}, or unset it"
        )
    if recipe.resources.gpu_pool == "ignore" or named == NOWHERE:
        return here("the recipe or LIMBECK_DISPATCH keeps them there")
    new = Dispatcher(
        named or USUAL_DEPLOYMENT,
        device_of_environment(named),
        grace=grace(),
        away=away,
        worker_seconds=recipe.resources.worker_seconds,
        required=recipe.resources.gpu_pool == "require",
    )
    return Placement(new, in_words(new)) if named else await usual_place(new, recipe)


def here(why: str) -> Placement:
    """Return the placement of a run that computes all of its stages itself."""
    return Placement(None, f"stages that run models are computed in the run itself: {why}" if why else "")


def in_words(dispatcher: Dispatcher, pool: str = "") -> str:
    """Return one sentence about the place of remote stages."""
    where = f"the work pool {pool}" if pool else "the workers"
    return f"stages that run models go to {where} of the deployment {dispatcher.deployment}, on {dispatcher.device}"


def device_of_environment(named: str) -> str:
    """Return the device class of a named deployment's workers, which a run cannot ask for; empty for the usual one."""
    device = os.environ.get("LIMBECK_DISPATCH_DEVICE", "").strip()
    if re.fullmatch(CLASS, device) or not (named or device):
        return device
    said = f"is {device!r}" if device else "is not set, and LIMBECK_DISPATCH is"
    raise RecipeError(
        f"LIMBECK_DISPATCH_DEVICE {said}; set it to the device class of the pool's workers, for example "
        f"cuda-a10g or cpu-avx512-intel: python -m tasks.ports.machine on a worker prints it"
    )


async def usual_place(new: Dispatcher, recipe: Recipe) -> Placement:
    """Return the placement that follows from what is deployed: stages go to the pool of the usual deployment, if the
    pool names its hardware, and if its workers share the store of this run. A run whose stages are containers stops
    rather than computes them itself, unless its recipe says otherwise."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value() or SERVER.get() is not None:  # workers never connect to a run's own server
        return here("")
    async with get_client() as client:
        try:
            deployment = await new.patiently(lambda: client.read_deployment_by_name(new.deployment))
            pool = await new.patiently(lambda: client.read_work_pool(deployment.work_pool_name or ""))
        except ObjectNotFound:
            return here(f"this Prefect server has no deployment {new.deployment} with a pool (limbeck deploy)")
    new.device = new.device or device_of(pool.base_job_template)
    if not new.device:
        return here(f"its pool {pool.name} names no hardware; set its variable device (limbeck deploy --site)")
    if not shares_store(pool.type):
        return here(f"the workers of the pool {pool.name} cannot be known to share the store; set LIMBECK_STORE")
    chosen = recipe.resources.model_fields_set
    if pool.type == "process":
        new.start_seconds = STARTED_WITHIN
    else:
        new.required = new.required or "gpu_pool" not in chosen
        new.worker_seconds = new.worker_seconds if "worker_seconds" in chosen else CONTAINERS_PATIENCE
    return Placement(new, in_words(new, pool.name))


def shares_store(kind: str) -> bool:
    """Return whether the workers of a pool of this type use the store of this run: one that the environment names, or,
    for a run that a worker started, the folder of that worker's machine."""
    from prefect.runtime import deployment

    return "LIMBECK_STORE" in os.environ or (kind == "process" and bool(deployment.id))


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


def stage_hours(asked: float) -> float:
    """Return the hours of a stage's limit: those of the recipe, or of the worker's pool (``LIMBECK_STAGE_HOURS``) if
    those are fewer."""
    given = os.environ.get("LIMBECK_STAGE_HOURS", "").strip() or f"{asked}"
    if not re.fullmatch(r"\d{1,4}(\.\d+)?", given) or float(given) <= 0:
        raise RecipeError(f"LIMBECK_STAGE_HOURS is {given!r}; set it to hours, for example 1.5, or unset it")
    return min(asked, float(given))


def silent_minutes() -> float:
    """Return the minutes after which a stage that reports nothing is ended: ``LIMBECK_SILENT_MINUTES`` of the worker's
    pool; 0 is no limit."""
    given = os.environ.get("LIMBECK_SILENT_MINUTES", "").strip() or "0"
    if not re.fullmatch(r"\d{1,5}(\.\d+)?", given):
        raise RecipeError(
            f"LIMBECK_SILENT_MINUTES is {given!r}; set it to minutes, for example 60, to 0 for no limit, or unset it"
        )
    return float(given)


def processes_of_worker() -> int:
    """Return the number of processes of one training: ``LIMBECK_PROCESSES``, the number of the worker's GPUs."""
    given = os.environ.get("LIMBECK_PROCESSES", "1")
    if not given.isdecimal() or not 1 <= int(given) <= 64:
        raise RecipeError(
            f"LIMBECK_PROCESSES is {given!r}; set it to the number of GPUs of this worker, 1 to 64, or unset it"
        )
    return int(given)


async def gpu_limit_of_server() -> str:
    """Return the name of the limit that a worker's stages take slots of: ``LIMBECK_GPU_LIMIT``, else the usual one if
    this Prefect server has it."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    if given := gpu_limit():
        return given
    async with get_client() as client:
        try:
            found = await Dispatcher("", "").patiently(lambda: client.read_global_concurrency_limit_by_name(LIMIT))
        except ObjectNotFound:
            return ""
    return LIMIT if found.active else ""


async def ready_dispatcher(recipe: Recipe, home: Home) -> Dispatcher | None:
    """Return the dispatcher of this run after a check that it can work, or None; the log says where stages run."""
    from prefect.logging import get_run_logger
    from prefect.runtime import flow_run

    placed = await find_placement(recipe)
    if placed.words:
        get_run_logger().info(placed.words)
    if placed.dispatcher is not None:
        placed.dispatcher.terms, placed.dispatcher.asker = terms_of(recipe, home), str(flow_run.id or "")
        await placed.dispatcher.require()
    return placed.dispatcher


def planned_place(recipe: Recipe) -> Placement:
    """Return the place for a plan, which a server that does not answer must not end."""
    if not {"PREFECT_API_URL", "LIMBECK_DISPATCH"} & set(os.environ):
        return here("")  # without a server, a plan does not wait for the import of Prefect
    try:
        return asyncio.run(find_placement(recipe, away=0))
    except DispatchError as error:
        return here(str(error))


def terms_of(recipe: Recipe, home: Home) -> OrderTerms:
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
        "stage_hours": recipe.resources.stage_hours,
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
