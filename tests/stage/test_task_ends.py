"""Prefect's server shows a task that has ended as ended, though a clock was set back or a killed server lost the
report."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.states import Completed, Running, State
from prefect.types._datetime import now

from flows.servers import watch
from tasks.errors import GateError
from tasks.stage import task_ends
from tasks.stage.task_ends import prefect_task, reported
from tests.sleeping_server import own


@flow
def runs_nothing() -> None:
    """Be what a task run belongs to."""


@task
def is_never_run() -> None:
    """Be what a task run is of."""


@pytest.mark.parametrize(("later", "shown"), [(-3600, "COMPLETED"), (60, "RUNNING")], ids=["an hour back", "as ever"])
def test_how_a_stage_ended_is_reported_again_only_if_the_clock_was_set_back(
    prefect_server: None, later: int, shown: str
) -> None:
    async def ended(run: str) -> State:
        return Completed(timestamp=now() + timedelta(seconds=later), state_details={"task_run_id": run})

    async def tell() -> str:
        async with get_client() as client:
            parent = await client.create_flow_run(runs_nothing)
            run = await client.create_task_run(is_never_run, parent.id, dynamic_key=str(later), state=Running())
            await reported(ended(str(run.id)))
            return (await client.read_task_run(run.id)).state.type.value

    assert asyncio.run(tell()) == shown


@pytest.mark.parametrize(("is_killed", "shown"), [(True, "COMPLETED"), (False, "RUNNING")], ids=["killed", "well"])
def test_ends_that_a_killed_server_had_not_written_are_reported_again(
    prefect_server: None, is_killed: bool, shown: str
) -> None:
    """The task run here is one whose end was lost: the server has heard that it runs, and nothing after that."""

    async def lost(run: str) -> State:
        return Completed(state_details={"task_run_id": run})

    async def work() -> str:
        async with get_client() as client:
            parent = await client.create_flow_run(runs_nothing)
            run = await client.create_task_run(is_never_run, parent.id, dynamic_key=shown, state=Running())
        await reported(lost(str(run.id)))
        return str(run.id)

    async def state_of(run: str) -> str:
        async with get_client() as client:
            return (await client.read_task_run(run)).state.type.value

    with own(["sleep", "601"]) as server, watch.in_a_sentence(server):
        if is_killed:
            first = server.process
            first.kill()
            while server.process is first:
                time.sleep(0.05)
        run = watch.run(work())
    assert asyncio.run(state_of(run)) == shown


def test_a_task_run_that_the_server_never_heard_of_holds_nothing_up(
    prefect_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_ends, "PAUSE", 0.0)
    nobody = Completed(state_details={"task_run_id": "00000000-0000-4000-8000-000000000000"})
    asyncio.run(task_ends.report_again([nobody]))


def test_errors_of_a_task_reach_the_caller_as_they_were(prefect_server: None) -> None:
    @prefect_task("fails")
    async def fails(words: str) -> None:
        raise GateError(words)

    @flow
    async def around() -> None:
        await fails("no champion")

    with pytest.raises(GateError, match="^no champion$"):
        asyncio.run(around())
