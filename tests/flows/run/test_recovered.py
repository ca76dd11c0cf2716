"""What the janitor does about a run whose process is gone; ``test_interrupted.py`` kills a real one."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Completed, Running

from flows.janitor import crash


def test_the_janitor_ends_the_branches_of_a_dead_run_and_leaves_finished_ones(prefect_server: None) -> None:
    """Nothing else ends them: Prefect's own automations know the run alone."""

    @flow
    async def dead() -> None: ...

    @task
    async def branch() -> None: ...

    async def states() -> list[str]:
        async with get_client() as client:
            run = await client.create_flow_run(dead, state=Running())

            async def below(state: object) -> FlowRun:
                place = await client.create_task_run(branch, run.id, dynamic_key=str(uuid4()), state=Running())
                return await client.create_flow_run(dead, parent_task_run_id=place.id, state=state)

            runs = [run, await below(Running()), await below(Completed())]
            await crash(client, str(run.id))
            return [str((await client.read_flow_run(one.id)).state_name) for one in runs]

    assert asyncio.run(states()) == ["Crashed", "Crashed", "Completed"]
