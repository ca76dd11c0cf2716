"""A clock that is set back: Prefect's server shows a stage that has ended as ended."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.states import Completed, Running, State
from prefect.types._datetime import now

from tasks.stage.set_back import told_in_order


@flow
def runs_nothing() -> None:
    """Be what a task run belongs to."""


@task
def is_never_run() -> None:
    """Be what a task run is of."""


@pytest.mark.parametrize(("later", "shown"), [(-3600, "COMPLETED"), (60, "RUNNING")], ids=["an hour back", "as ever"])
def test_how_a_stage_ended_is_said_again_only_if_the_clock_was_set_back(
    prefect_server: None, later: int, shown: str
) -> None:
    async def ended(run: str) -> State:
        return Completed(timestamp=now() + timedelta(seconds=later), state_details={"task_run_id": run})

    async def tell() -> str:
        async with get_client() as client:
            parent = await client.create_flow_run(runs_nothing)
            run = await client.create_task_run(is_never_run, parent.id, dynamic_key=str(later), state=Running())
            await told_in_order(ended(str(run.id)))
            return (await client.read_task_run(run.id)).state.type.value

    assert asyncio.run(tell()) == shown
