"""``python -m flows.deploy.register_pool POOL``: create the work pool of this machine's worker before the worker
starts, with our template, this machine's hardware and its number of places; `limbeck up` does the same for its own."""

from __future__ import annotations

import asyncio
import sys

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.exceptions import ObjectNotFound

from flows.deploy.deploy import server
from flows.deploy.gpu_pool import create_request
from flows.deploy.pools import RUNS, local_pool, renewed_template, run_places
from tasks.errors import LimbeckError


async def register(name: str) -> None:
    """Create the pool, or renew its template; what a person has set there stays."""
    ours = local_pool(name)
    async with server() as client:
        try:
            there = await client.read_work_pool(name)
        except ObjectNotFound:
            await client.create_work_pool(create_request(name, ours))
        else:
            template = renewed_template(ours["base_job_template"], there.base_job_template)
            if there.type == ours["type"] and template is not None:
                await client.update_work_pool(name, WorkPoolUpdate(base_job_template=dict(template)))
        if name == RUNS:
            await limit_runs(client)


async def limit_runs(client: PrefectClient) -> None:
    """Limit the runs at once to what this machine has memory and cores for, unless a person has set a limit."""
    queue = await client.read_work_queue_by_name("default", work_pool_name=RUNS)
    if queue.concurrency_limit is None:
        await client.update_work_queue(queue.id, concurrency_limit=run_places())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("name one pool: python -m flows.deploy.register_pool POOL")
    try:
        asyncio.run(register(sys.argv[1]))
    except LimbeckError as error:
        sys.exit(str(error))
