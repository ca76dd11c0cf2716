"""``limbeck deploy``: set up everything in ``deployments/`` on a Prefect server: work pools, the GPU limit, deployments
and automations.

Each object is read first and written only if it differs, so that a second deploy changes nothing. Settings that people
change in the Prefect UI are kept: default parameters, schedules, whether an automation is enabled, the number of GPUs,
and the site's values of a pool's variables. ``--reset`` restores all of them but the number of GPUs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import (
    DeploymentScheduleCreate,
    DeploymentUpdate,
    GlobalConcurrencyLimitCreate,
    GlobalConcurrencyLimitUpdate,
    WorkPoolUpdate,
)
from prefect.client.schemas.objects import ConcurrencyOptions, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL

from flows.deploy.gpu_pool import (
    Pools,
    create_request,
    gpu_pool,
    gpus_of_a_stage,
    limit_pool,
    make_local_pool,
    require_pool,
)
from flows.deploy.pools import LOCAL_GPUS, POOLS, RUNS, Site, definition_of, settled
from flows.deploy.renamed import FORMER, SetByPeople, former, set_by_people
from flows.deploy.timetable import (
    GPU_POOLS,
    Entry,
    ScheduleEntry,
    automations,
    schedule_of,
    standing,
    timetable,
    triggers_of,
)
from flows.servers.watch import ask_prefect
from tasks.errors import ServerError

GPU_LIMIT = "LIMBECK_GPU_LIMIT"
QUEUES = {"upkeep": "Maintenance of the runs: janitor, resubmission, promotion."}
REFUSED = (401, 403)


@dataclass
class DeployOptions:
    """Options of the command line."""

    site: Site = field(default_factory=dict)
    gpus: int | None = None
    runs: int | None = None
    gpu_pool: str | None = None
    reset: bool = False


@dataclass
class Change:
    """The outcome for one object on the server."""

    kind: str
    name: str
    done: str
    """``created``, ``unchanged``, or ``updated`` with the names of the updated fields."""


async def deploy(options: DeployOptions) -> list[Change]:
    """Create or update all objects; return the outcome for each."""
    async with server() as client:
        named_local = [LOCAL_GPUS] if LOCAL_GPUS in options.site else []
        lines = [await apply_pool(client, name, options) for name in (*POOLS, *named_local)]
        lines += [await apply_queue(client, RUNS, name) for name in QUEUES]
        lines += await apply_run_limit(client, options)
        pools = {pool.name: pool for pool in await client.read_work_pools(limit=200)}
        require_pool(options.gpu_pool, list(pools))
        if options.gpus is not None and options.gpu_pool is None and await make_local_pool(client, pools):
            lines.append(Change("work pool", LOCAL_GPUS, "created"))
        for entry in timetable():
            lines += await apply_deployment(client, entry, options, pools)
        return lines + [await apply_automation(client, wanted, options) for wanted in automations()]


@asynccontextmanager
async def server() -> AsyncIterator[PrefectClient]:
    """Connect to the Prefect server; report failures as a ServerError of one sentence. An address is required, because
    Prefect would otherwise start a temporary server."""
    address = PREFECT_API_URL.value()
    if not address:
        raise ServerError(
            "no Prefect server is configured; start one with limbeck up, or set PREFECT_API_URL to a running one"
        )
    try:
        await ask_prefect()
        async with get_client() as client:
            yield client
    except PrefectHTTPStatusError as error:
        status = error.response.status_code
        if status in REFUSED:
            how = (
                'set PREFECT_API_AUTH_STRING to its user:password, for a server of limbeck up by: eval "$(limbeck env)"'
            )
            raise ServerError(
                f"the Prefect server at {without_password(address)} denies access ({status}); {how}"
            ) from error
        raise ServerError(
            f"the Prefect server at {without_password(address)} answered {status}: {detail(error.response)}"
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        said = str(error) or type(error).__name__
        raise ServerError(
            f"there is no Prefect server at {without_password(address)} ({said}); start it, or correct PREFECT_API_URL"
        ) from error


def without_password(address: str) -> str:
    """Return an address without user name and password."""
    found = httpx.URL(address)
    return str(found.copy_with(username=None, password=None)) if found.userinfo else address


def detail(response: httpx.Response) -> str:
    """Return the error message of a response, on one line of at most 500 characters."""
    with contextlib.suppress(ValueError, AttributeError, KeyError):
        said = response.json()
        return " ".join(str(said.get("detail") or said.get("exception_detail") or said["exception_message"]).split())[
            :500
        ]
    return " ".join(response.text.split())[:500]


# --- pools and limits -------------------------------------------------------------------------------------------------


async def apply_pool(client: PrefectClient, name: str, options: DeployOptions) -> Change:
    """Create or update a work pool from its file, with the values set at this site."""
    ours, set_here = definition_of(name), options.site.get(name, {})
    try:
        there: WorkPool | None = await client.read_work_pool(name)
    except ObjectNotFound:
        there = None
    if there is None:
        template = settled(ours["base_job_template"], None, set_here)
        await client.create_work_pool(create_request(name, {**ours, "base_job_template": template}))
        return Change("work pool", name, "created")
    if there.type != ours["type"]:
        raise ServerError(
            f"the work pool {name} on this server is of type {there.type}, and its runs need {ours['type']}; "
            f"rename it, or delete it (prefect work-pool delete {name}), then deploy again"
        )
    before = None if options.reset else there.base_job_template
    template = settled(ours["base_job_template"], before, set_here)
    wanted = {"description": ours["description"], "base_job_template": dict(template)}
    changed = [what for what, value in wanted.items() if getattr(there, what) != value]
    if changed:
        given = {what: wanted[what] for what in changed}
        await client.update_work_pool(name, WorkPoolUpdate.model_validate(given))
    return Change("work pool", name, change_summary(changed))


async def apply_queue(client: PrefectClient, pool: str, name: str) -> Change:
    """Create a queue if it is missing; people may change its limit and priority."""
    try:
        await client.read_work_queue_by_name(name, work_pool_name=pool)
    except ObjectNotFound:
        await client.create_work_queue(name, description=QUEUES[name], priority=1, work_pool_name=pool)
        return Change("work queue", f"{pool}/{name}", "created")
    return Change("work queue", f"{pool}/{name}", "unchanged")


async def apply_run_limit(client: PrefectClient, options: DeployOptions) -> list[Change]:
    """Limit the number of runs at once, if one is given; upkeep has a queue of its own, and never waits behind them."""
    if options.runs is None:
        return []
    queue = await client.read_work_queue_by_name("default", work_pool_name=RUNS)
    changed = ["concurrency_limit"] if queue.concurrency_limit != options.runs else []
    if changed:
        await client.update_work_queue(queue.id, concurrency_limit=options.runs)
    return [Change("work queue", f"{RUNS}/default", change_summary(changed))]


async def apply_limit(client: PrefectClient, pool: WorkPool, options: DeployOptions) -> list[Change]:
    """Limit the trainings at once, in the pool and for stages that hold several GPUs: a stage holds slots while it
    trains, and none if its result is cached."""
    name = os.environ.get(GPU_LIMIT, "gpu")
    try:
        there = await client.read_global_concurrency_limit_by_name(name)
    except ObjectNotFound:
        there = None
    usual = there.limit if there else (pool.concurrency_limit or 1) * gpus_of_a_stage(pool)
    slots = options.gpus or usual
    changed = await limit_pool(client, pool, slots, given=options.gpus is not None)
    lines = [Change("work pool", f"{pool.name}, runs at once", "updated (concurrency_limit)")] if changed else []
    if there is None:
        await client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=slots))
        return [*lines, Change("concurrency limit", name, "created")]
    if there.limit == slots and there.active:
        return [*lines, Change("concurrency limit", name, "unchanged")]
    await client.update_global_concurrency_limit(name, GlobalConcurrencyLimitUpdate(limit=slots, active=True))
    return [*lines, Change("concurrency limit", name, change_summary(["limit"]))]


# --- deployments ------------------------------------------------------------------------------------------------------


async def apply_deployment(client: PrefectClient, entry: Entry, options: DeployOptions, pools: Pools) -> list[Change]:
    """Create or update a deployment from the file, then its schedules and the automations that trigger it."""
    try:
        there: DeploymentResponse | None = await client.read_deployment_by_name(entry.full_name)
    except ObjectNotFound:
        there = None
    limits: list[Change] = []
    if entry.fields["work_pool_name"] in GPU_POOLS:
        chosen = gpu_pool(pools, there.work_pool_name if there else None, options.gpu_pool, options.site)
        entry.fields["work_pool_name"], limits = chosen, await apply_limit(client, pools[chosen], options)
    if there is None:
        deployment, done = await create_or_rename(client, entry, options)
    else:
        deployment, done = (
            there.id,
            change_summary(
                [*await update(client, entry, there, options), *await apply_schedules(client, entry, there, options)]
            ),
        )
    lines = [*limits, Change("deployment", entry.full_name, done)]
    return lines + [await apply_automation(client, wanted, options) for wanted in triggers_of(entry, deployment)]


async def create_or_rename(client: PrefectClient, entry: Entry, options: DeployOptions) -> tuple[UUID, str]:
    """Create a deployment; one that had another name in an earlier version is replaced, with what people set."""
    old = await former(client, entry.full_name)
    if old is None:
        return await create(client, entry), "created"
    deployment = await create(client, entry, None if options.reset else set_by_people(old))
    await client.delete_deployment(old.id)
    return deployment, f"created (it was {FORMER[entry.full_name]})"


async def create(client: PrefectClient, entry: Entry, kept: SetByPeople | None = None) -> UUID:
    """Create a deployment with all fields and schedules of its entry; ``kept`` replaces some of them."""
    fields = entry.fields
    strategy = fields["collision_strategy"]
    ours: SetByPeople = {
        "parameters": entry.parameters,
        "schedules": [new_schedule(one) for one in entry.schedules],
    }
    given = kept or ours
    return await client.create_deployment(
        flow_id=await client.create_flow_from_name(entry.flow),
        name=entry.name,
        concurrency_options=ConcurrencyOptions(collision_strategy=strategy) if strategy else None,
        parameters=given["parameters"],
        schedules=given["schedules"],
        entrypoint=fields["entrypoint"],
        description=fields["description"],
        tags=fields["tags"],
        work_pool_name=fields["work_pool_name"],
        work_queue_name=fields["work_queue_name"],
        job_variables=fields["job_variables"],
        enforce_parameter_schema=fields["enforce_parameter_schema"],
        parameter_openapi_schema=dict(fields["parameter_openapi_schema"] or {}),
        pull_steps=fields["pull_steps"],
        concurrency_limit=fields["concurrency_limit"],
    )


async def update(client: PrefectClient, entry: Entry, there: DeploymentResponse, options: DeployOptions) -> list[str]:
    """Write the fields of a deployment that differ; return their names."""
    known, ours = dict(standing(there)), dict(entry.fields)
    changed = [name for name, value in ours.items() if known[name] != value]
    written = {name: ours[name] for name in changed if name != "collision_strategy"}
    if entry.fields["collision_strategy"]:
        written["concurrency_options"] = ConcurrencyOptions(collision_strategy=entry.fields["collision_strategy"])
    if options.reset and there.parameters != entry.parameters:
        changed, written = [*changed, "parameters"], {**written, "parameters": entry.parameters}
    if changed:
        # The server looks up a pool and its queue together, and removes tags that are not sent.
        whole = {name: ours[name] for name in ("work_pool_name", "work_queue_name", "tags")}
        await client.update_deployment(there.id, DeploymentUpdate.model_validate(whole | written))
    return changed


def new_schedule(given: ScheduleEntry) -> DeploymentScheduleCreate:
    """Return a new schedule in the form of Prefect's client."""
    return DeploymentScheduleCreate(
        schedule=schedule_of(given), active=given["active"], slug=given["slug"], parameters=given.get("parameters", {})
    )


async def apply_schedules(
    client: PrefectClient, entry: Entry, there: DeploymentResponse, options: DeployOptions
) -> list[str]:
    """Add missing schedules; existing ones, and whether they are active, change only with ``--reset``."""
    known, changed = {schedule.slug: schedule for schedule in there.schedules}, []
    for given in entry.schedules:
        found, wanted = known.get(given["slug"]), new_schedule(given)
        if found is None:
            await client.create_deployment_schedules(there.id, [wanted])
            changed.append(f"schedule {given['slug']}")
        elif options.reset and (found.active != wanted.active or found.schedule != wanted.schedule):
            await client.update_deployment_schedule(there.id, found.id, active=wanted.active, schedule=wanted.schedule)
            changed.append(f"schedule {given['slug']}")
    return changed


# --- automations ------------------------------------------------------------------------------------------------------


async def apply_automation(client: PrefectClient, wanted: AutomationCore, options: DeployOptions) -> Change:
    """Create or update an automation from its file; whether it is enabled changes only with ``--reset``."""
    known = await client.read_automations_by_name(wanted.name)
    if not known:
        await client.create_automation(wanted)
        return Change("automation", wanted.name, "created")
    there = known[0]
    if not options.reset:
        wanted = wanted.model_copy(update={"enabled": there.enabled})
    changed = differing(wanted, there)
    if changed:
        # The owner is set at creation; the server refuses an update that contains the field.
        await client.update_automation(there.id, AutomationCore(**wanted.model_dump(exclude={"owner_resource"})))
    return Change("automation", wanted.name, change_summary(changed))


def differing(wanted: AutomationCore, there: AutomationCore) -> list[str]:
    """Return the fields in which two automations differ."""
    # The server does not return the owner; the deployment that an automation starts is in its actions.
    compared = set(AutomationCore.model_fields) - {"owner_resource"}
    ours, theirs = (one.model_dump(mode="json", include=compared) for one in (wanted, there))
    return [name for name, value in ours.items() if theirs[name] != value]


def change_summary(changed: Sequence[str]) -> str:
    """Return a description of the changed fields."""
    return f"updated ({', '.join(changed)})" if changed else "unchanged"
