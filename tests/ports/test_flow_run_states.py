"""Many stages in flight cost a Prefect server no more requests than a few, and none of them is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import PrefectClient, get_client
from prefect.states import Completed, Running, Scheduled

from tasks.ports import flow_run_states
from tasks.ports.flow_run_states import FlowRunStates


@flow
def waited_for() -> None:
    """A flow whose runs are made and moved by hand."""


async def ask(request: Callable[[], Awaitable[Any]]) -> Any:
    return await request()


async def follow(states: FlowRunStates, client: PrefectClient, run: Any, seen: list[str]) -> None:
    """Do what a run does that waits for a stage, without its pauses."""
    last = states.begin(run)
    state = run.state
    while run.id not in states.missing and not state.is_final():
        await asyncio.sleep(0.05)
        state, last = await states.read(client, run.id, last)
        if state.name != (seen or [""])[-1]:
            seen.append(state.name)
    states.end(run.id)


def counted(client: PrefectClient) -> list[str]:
    """Return a list that grows by the path of each later request."""
    paths: list[str] = []

    async def note(request: Any) -> None:
        paths.append(request.url.path)

    client._client.event_hooks["request"].append(note)
    return paths


@pytest.mark.parametrize("number", [2, 24])
def test_requests_do_not_grow_with_the_flow_runs_that_are_waited_for(
    prefect_server: None, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(flow_run_states, "RUNS_OF_A_REQUEST", 10)

    async def main() -> None:
        async with get_client() as client:
            runs = [await client.create_flow_run(waited_for, state=Scheduled()) for _ in range(number)]
            states, seen = FlowRunStates(ask), [list[str]() for _ in runs]
            paths = counted(client)
            waiting = [
                asyncio.ensure_future(follow(states, client, run, each)) for run, each in zip(runs, seen, strict=True)
            ]
            await asyncio.sleep(0.5)
            async with get_client() as other:
                for state in (Running(), Completed()):
                    for run in runs:
                        await other.set_flow_run_state(run.id, state, force=True)
                    await asyncio.sleep(0.5)
            await asyncio.wait_for(asyncio.gather(*waiting), 60)
            assert all(each[-1] == "Completed" for each in seen)
            assert states.waiting == set() and states.states == {}
            # A round asks once for those that were scheduled and once for those that ran; full pages are few.
            full_pages = 2 * (number // flow_run_states.RUNS_OF_A_REQUEST)
            assert states.rounds > 5 and len(paths) <= 2 * states.rounds + full_pages

    asyncio.run(main())


def test_a_flow_run_that_was_deleted_is_found_missing(prefect_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_run_states, "COUNTED_EVERY", 0.2)

    async def main() -> None:
        async with get_client() as client:
            runs = [await client.create_flow_run(waited_for, state=Scheduled()) for _ in range(3)]
            states = FlowRunStates(ask)
            waiting = asyncio.ensure_future(follow(states, client, runs[0], []))
            states.begin(runs[1])
            await asyncio.sleep(0.3)
            await client.delete_flow_run(runs[0].id)
            await asyncio.wait_for(waiting, 30)
            assert runs[1].id in states.states and not states.missing

    asyncio.run(main())


def test_a_state_that_was_read_is_told_to_all_who_wait(prefect_server: None) -> None:
    """One round serves everybody: a second reader of the same moment sends no request of its own."""

    async def main() -> None:
        async with get_client() as client:
            runs = [await client.create_flow_run(waited_for, state=Scheduled()) for _ in range(5)]
            states = FlowRunStates(ask)
            last = [states.begin(run) for run in runs]
            for run in runs:
                await client.set_flow_run_state(run.id, Running(), force=True)
            paths = counted(client)
            found = await asyncio.gather(
                *(states.read(client, run.id, after) for run, after in zip(runs, last, strict=True))
            )
            assert [state.name for state, _ in found] == ["Running"] * 5
            assert len(paths) == 1, paths

    asyncio.run(main())
