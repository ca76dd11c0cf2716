"""The janitor: closes runs that a crash left open. A killed worker cannot close its runs itself, and neither MLflow nor
Prefect does so."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import FlowRun, TaskRun
from prefect.client.schemas.sorting import FlowRunSort, TaskRunSort
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.states import Crashed

from flows.home import Home
from flows.servers.workspaces import sweep_workspaces
from flows.stack.settings import Stack
from tasks.ports.processes import is_gone
from tasks.ports.store.open import open_store
from tasks.ports.tracking.tracker import Tracker

DAY = 86400.0
PAGE = 200
Found = TypeVar("Found")
PENDING = 3600.0  # seconds after which an unfinished model counts as abandoned


@flow(name="janitor", flow_run_name="janitor")
async def janitor() -> dict[str, list[str]]:
    """End runs whose process no longer exists, in MLflow and Prefect; remove unfinished models, workspaces and uploads
    of crashed workers."""
    home = Home.from_environment()
    tracker = Tracker(home.tracking_uri, home.artifacts)
    ended = []
    async with get_client() as client:
        for row in await asyncio.to_thread(tracker.open_runs):
            if await is_over(client, row):
                await asyncio.to_thread(tracker.end_for, row)
                await crash(client, row["flow_run"])
                ended.append(row["run"])
    pending = await asyncio.to_thread(tracker.drop_pending, PENDING)
    store = await asyncio.to_thread(open_store, home.store, home.cache)
    under_way = {str(note["key"]) for note in await asyncio.to_thread(store.running)}
    leftovers = await asyncio.to_thread(store.leftovers, 7 * DAY, under_way, dry=False)
    temporary = Stack.of(home).temporary
    workspaces = await asyncio.to_thread(
        sweep_workspaces, {Path(tempfile.gettempdir()), temporary, *temporary.glob("*/")}
    )
    leftovers += [str(path) for path in workspaces]
    get_run_logger().info(
        f"ended {len(ended)} runs, removed {len(pending)} unfinished models and {len(leftovers)} leftover files"
    )
    return {"ended": ended, "pending": pending, "leftovers": leftovers}


async def is_over(client: PrefectClient, row: dict[str, str]) -> bool:
    """Return whether a run is over: its process is gone or, for a process of another host, Prefect reports its end."""
    gone = is_gone(row["process"])
    if gone is not None:
        return gone
    try:
        run = await client.read_flow_run(UUID(row["flow_run"]))
    except (ValueError, ObjectNotFound):
        return False  # a run of another Prefect server
    return run.state is not None and run.state.is_final()


async def crash(client: PrefectClient, flow_run: str) -> None:
    """Set a flow run, its tasks and its branches to Crashed in Prefect, unless they have ended. Its stages in a pool go
    on, each watched by its own worker: the run that is started anew finds them, or their results."""
    try:
        run = await client.read_flow_run(UUID(flow_run))
    except (ValueError, ObjectNotFound):
        return
    gone: Any = Crashed(message="its process no longer exists; the janitor ended it")
    async for task in task_runs(client, run.id):
        if task.state is None or not task.state.is_final():
            await client.set_task_run_state(task.id, gone, force=True)
    async for branch in branches(client, run.id):
        if branch.deployment_id is None and (branch.state is None or not branch.state.is_final()):
            await crash(client, str(branch.id))
    if run.state is None or not run.state.is_final():
        await client.set_flow_run_state(run.id, gone, force=True)


def branches(client: PrefectClient, flow_run: UUID) -> AsyncIterator[FlowRun]:
    """Yield the flow runs inside of a flow run."""
    below = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run]))
    return paged(partial(client.read_flow_runs, flow_run_filter=below, sort=FlowRunSort.NAME_ASC))


def task_runs(client: PrefectClient, flow_run: UUID) -> AsyncIterator[TaskRun]:
    """Yield the task runs of a flow run."""
    of_run = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
    return paged(partial(client.read_task_runs, flow_run_filter=of_run, sort=TaskRunSort.NAME_ASC))


async def paged(read: Callable[..., Awaitable[list[Found]]]) -> AsyncIterator[Found]:
    """Yield what a request finds, page by page; the server requires an order and a limit."""
    start = 0
    while page := await read(limit=PAGE, offset=start):
        for one in page:
            yield one
        start += len(page)
