"""The pool that stages on GPUs go to: chosen, created for the GPUs of this machine, and limited to a number of GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import WorkPool

from flows.deploy.pools import LOCAL_GPUS, RUNS, PoolDefinition, Site, local_pool
from flows.deploy.timetable import GPU_POOLS
from tasks.errors import RecipeError
from tasks.ports.work_pools import DEVICE, device_of

Pools = Mapping[str, WorkPool]
STAGE_POOLS = (LOCAL_GPUS, *GPU_POOLS)
"""Pools that stages go to by default if they name their workers' hardware, that of this machine first."""
UNCHOSEN_POOL = GPU_POOLS[0]
"""The pool of ``prefect.yaml``, which nobody has chosen."""


def require_pool(name: str | None, known: Sequence[str]) -> None:
    """Raise RecipeError if the pool for GPU stages does not exist, or is that of the runs, which would wait for stages
    that wait behind them."""
    if name is not None and name not in known:
        raise RecipeError(
            f"--gpu-pool {name}: this server does not have this work pool; it has {', '.join(sorted(known))}"
        )
    if name == RUNS:
        raise RecipeError(
            f"--gpu-pool {RUNS}: runs wait in this pool for their stages; choose another pool, for example {LOCAL_GPUS}"
        )


def with_hardware(pools: Pools) -> list[str]:
    """Return the pools that runs send stages to by default: those that name their workers' hardware, this machine's
    first."""
    return [name for name in STAGE_POOLS if name in pools and device_of(pools[name].base_job_template)]


def gpu_pool(pools: Pools, before: str | None, named: str | None, site: Site) -> str:
    """Return the pool for stages on GPUs: the named one, the one whose hardware the site file names, the one of the
    earlier deploy, or the first that names its hardware."""
    of_site = [name for name, values in site.items() if values.get(DEVICE) and name in STAGE_POOLS]
    ready = with_hardware(pools)
    if named or of_site:
        return named or of_site[0]
    if before in pools and (before in ready or before != UNCHOSEN_POOL or not ready):
        return str(before)
    return ready[0] if ready else UNCHOSEN_POOL


def create_request(name: str, pool: PoolDefinition) -> WorkPoolCreate:
    """Return the request that creates a pool."""
    return WorkPoolCreate(
        name=name,
        type=pool["type"],
        description=pool["description"],
        base_job_template=dict(pool["base_job_template"]),
        concurrency_limit=pool.get("concurrency_limit"),
    )


async def make_local_pool(client: PrefectClient, pools: dict[str, WorkPool]) -> bool:
    """Create the pool for the GPUs of this machine if no pool names its hardware; return whether it was created."""
    if with_hardware(pools) or LOCAL_GPUS in pools:
        return False
    pools[LOCAL_GPUS] = await client.create_work_pool(create_request(LOCAL_GPUS, local_pool(LOCAL_GPUS)))
    return True


async def limit_pool(client: PrefectClient, pool: WorkPool, slots: int, *, given: bool) -> bool:
    """Limit a pool to as many runs at once as have slots of GPUs, so that no machine waits idly for them; return
    whether the limit changed. One that a person has set stays unless a number is ``given``, and processes start no
    machine. Raises RecipeError for fewer slots than one stage takes."""
    each = gpus_of_a_stage(pool)
    if slots < each:
        raise RecipeError(
            f"a container of the pool {pool.name} has {each} GPUs (gpu_count), and stages may hold {slots} at once; "
            f"give --gpus {each} or more"
        )
    if not given and (pool.concurrency_limit is not None or pool.type == "process"):
        return False
    if pool.concurrency_limit == slots // each:
        return False
    await client.update_work_pool(pool.name, WorkPoolUpdate(concurrency_limit=slots // each))
    return True


def gpus_of_a_stage(pool: WorkPool) -> int:
    """Return how many GPUs a container of a pool has, by its variable ``gpu_count``; 1 for processes."""
    variables = pool.base_job_template.get("variables", {}).get("properties", {})
    count = str(variables.get("gpu_count", {}).get("default", 1))
    return int(count) if count.isdecimal() and int(count) else 1
