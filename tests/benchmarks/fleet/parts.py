"""The parts of a fleet: a run that requests many stages, workers, and a stage that sleeps instead of training.

The run requests its stages by the dispatcher of the product. A simulated worker is Prefect's own worker, which polls,
beats and proposes states as any other, and runs Prefect's own engine; but many of them share one process, and a stage
is no process of its own. Real ones are ``prefect worker start``.

    python -m tests.benchmarks.fleet.parts workers POOL FIRST COUNT
    python -m tests.benchmarks.fleet.parts request DEPLOYMENT STAGES SECONDS LEDGER
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import anyio.abc
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.flow_engine import run_flow_async
from prefect.workers.base import BaseJobConfiguration, BaseWorker, BaseWorkerResult

from tasks.stage.orders import OrderTerms, StageRequest
from tasks.stage.remote import Dispatcher


def note(ledger: str, what: str, key: str) -> None:
    """Add a line to the ledger, whole, whoever else writes."""
    line = f"{what} {key} {os.getpid()}\n".encode()
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


@task(task_run_name="{label}")
async def sleep(label: str, key: str, knobs: dict[str, Any]) -> str:
    """Do what a stage does with Prefect while it trains: nothing."""
    note(knobs["ledger"], "began", key)
    await asyncio.sleep(knobs["seconds"])
    note(knobs["ledger"], "ended", key)
    return key


@flow(name="stage", persist_result=False)
async def sleeping_stage(order: dict[str, Any]) -> str:
    """Stand for ``flows.stage_run.make_stage``: one flow run with one task."""
    return await sleep(order["label"], order["key"], order["knobs"])


class SleepingWorker(BaseWorker[BaseJobConfiguration, Any, BaseWorkerResult]):
    """A worker whose stages sleep in its own process."""

    type = "process"
    job_configuration = BaseJobConfiguration

    async def run(
        self,
        flow_run: FlowRun,
        configuration: BaseJobConfiguration,
        task_status: anyio.abc.TaskStatus[str] | None = None,
    ) -> BaseWorkerResult:
        """Run one flow run, with the requests that ``prefect flow-run execute`` sends before its engine starts."""
        if task_status is not None:
            task_status.started("in this process")
        async with get_client() as client:
            known = await client.read_flow_run(flow_run.id)
            if known.deployment_id is not None:
                await client.read_deployment(known.deployment_id)
            await client.read_flow(known.flow_id)
        await run_flow_async(sleeping_stage, flow_run=known, parameters=known.parameters, return_type="state")
        return BaseWorkerResult(identifier="", status_code=0)


async def serve(pool: str, first: int, count: int) -> None:
    """Run simulated workers until the process is ended; their first polls are spread, as those of a grown fleet are."""

    async def one(number: int) -> None:
        await asyncio.sleep(15.0 * (number - first) / count)
        await SleepingWorker(pool, name=f"{pool}-{number}", limit=1, create_pool_if_not_found=False).start(
            printer=lambda _: None
        )

    await asyncio.gather(*(one(number) for number in range(first, first + count)))


@flow(name="fleet", persist_result=False)
async def request(deployment: str, stages: int, seconds: float, ledger: str) -> int:
    """Request stages, all at once, as a run of that many branches does; return how many were computed for this run."""
    from prefect.runtime import flow_run

    dispatcher = Dispatcher(deployment, "cpu", terms=OrderTerms(store="s3://fleet"), asker=str(flow_run.id))
    await dispatcher.require()
    orders = [order_of(number, seconds, ledger) for number in range(stages)]
    return sum(await asyncio.gather(*(dispatcher.make(order, lambda state, words: None) for order in orders)))


def order_of(number: int, seconds: float, ledger: str) -> StageRequest:
    """Return the request for one stage, as large as a real one."""
    key = hashlib.sha256(f"{ledger} {number}".encode()).hexdigest()
    knobs: dict[str, object] = {"ledger": ledger, "seconds": seconds}
    parts = {f"part {part}": key for part in range(20)}
    return StageRequest(
        stage="sleep",
        label=f"branch-{number}",
        knobs=knobs,
        key=key,
        inputs={},
        explanation={"parts": parts},  # type: ignore[typeddict-item]
        force=False,
        tracking={},
    )


def main() -> None:
    """Be the part that the command line names."""
    part, *words = sys.argv[1:]
    if part == "workers":
        asyncio.run(serve(words[0], int(words[1]), int(words[2])))
    else:
        made = asyncio.run(request(words[0], int(words[1]), float(words[2]), words[3]))
        Path(f"{words[3]}.made").write_text(str(made))


if __name__ == "__main__":
    main()
