"""What becomes in Prefect of a run whose process is gone, or that was cancelled: its branches end with it, and its
stages in a pool are their workers'. ``test_interrupted.py`` kills a real run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelling, Completed, Running

from flows.janitor import crash
from flows.run.stopping import cancel_subflows


@flow
async def dead() -> None: ...


@task
async def branch() -> None: ...


def states_after(end: Callable[[UUID], Awaitable[None]], stage: object) -> list[str]:
    """End a run with two branches, of which the second one is complete, and a stage in a pool; return the four
    states."""

    async def found() -> list[str]:
        async with get_client() as client:
            run = await client.create_flow_run(dead, state=Running())

            async def place() -> UUID:
                return (await client.create_task_run(branch, run.id, dynamic_key=str(uuid4()), state=Running())).id

            async def below(state: object) -> FlowRun:
                return await client.create_flow_run(dead, parent_task_run_id=await place(), state=state)

            deployed = await client.create_deployment(await client.create_flow(dead), name="in-a-pool")
            sent = await client.create_flow_run_from_deployment(deployed, parent_task_run_id=await place())
            for state in (Running(), stage):  # what never ran would be Cancelled at once
                await client.set_flow_run_state(sent.id, state, force=True)
            runs = [run, await below(Running()), await below(Completed()), sent]
            await end(run.id)
            return [str((await client.read_flow_run(one.id)).state_name) for one in runs]

    return asyncio.run(found())


def test_the_janitor_ends_the_branches_of_a_dead_run_and_leaves_finished_ones(prefect_server: None) -> None:
    """Nothing else ends them: Prefect's own automations know the run alone."""

    async def end(run: UUID) -> None:
        async with get_client() as client:
            await crash(client, str(run))

    assert states_after(end, Running()) == ["Crashed", "Crashed", "Completed", "Running"]


def test_a_cancelled_run_leaves_the_end_of_a_stage_to_its_worker(prefect_server: None) -> None:
    """A worker that asks now and then (its websocket is away) finds what is Cancelling, and would let what is Cancelled
    already train to its end."""
    assert states_after(cancel_subflows, Cancelling()) == ["Running", "Cancelled", "Completed", "Cancelling"]
