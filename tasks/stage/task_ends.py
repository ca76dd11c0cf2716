"""Ends of Prefect tasks, reported to Prefect's server a second time where it rejected or lost the first report.

The end of a task run is sent as an event. The server accepts a state only if it is later than the one before, so a task
whose clock was set back while it worked would be displayed as running for ever. And the server acknowledges events some
seconds before it writes them: one that is killed in between loses them. The interface that sets states directly ignores
their order, and answers only after it has written.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:  # a plan imports this module, and does without Prefect, whose import takes a second
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import State

ATTEMPTS = 20  # at most, to find a task run that the server does not know yet
PAUSE = 0.5  # seconds between two attempts
PAGE = 200  # task runs per request

ENDED: ContextVar[list[State] | None] = ContextVar("ended-task-runs", default=None)
"""The final states of the task runs of this process, if they are being collected."""


@contextlib.contextmanager
def collected_ends() -> Iterator[list[State]]:
    """Collect the final states of all task runs that end inside the block."""
    ended: list[State] = []
    token = ENDED.set(ended)
    try:
        yield ended
    finally:
        ENDED.reset(token)


async def reported(work: Awaitable[State]) -> State:
    """Wait for a task run to end; report the end again if the clock was set back meanwhile."""
    began = datetime.now(UTC)
    ended = await work
    collected = ENDED.get()
    if collected is not None:
        collected.append(ended)
    if ended.timestamp < began:
        await report_again([ended])
    return ended


async def report_again(ended: list[State]) -> None:
    """Set the final states of task runs that the server displays as unfinished, as soon as it knows of them; those that
    it never learns of are skipped."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectException

    waiting = {run: state for state in ended if (run := state.state_details.task_run_id) is not None}
    with contextlib.suppress(httpx.HTTPError, PrefectException):  # their results are stored all the same
        async with get_client() as client:
            for attempt in range(ATTEMPTS):
                is_last = attempt == ATTEMPTS - 1
                for run, known in (await states_of(client, list(waiting))).items():
                    # A run that the server does not know as running yet would be set to running by a late event.
                    is_unfinished = known.is_running() or (is_last and not known.is_final())
                    if is_unfinished:
                        await client.set_task_run_state(run, waiting[run], force=True)
                    if is_unfinished or known.is_final():
                        del waiting[run]
                if not waiting:
                    return
                await asyncio.sleep(PAUSE)


async def states_of(client: PrefectClient, runs: list[UUID]) -> dict[UUID, State]:
    """Return the states of those task runs that the server knows."""
    from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterId

    found = []
    for start in range(0, len(runs), PAGE):
        wanted = TaskRunFilter(id=TaskRunFilterId(any_=runs[start : start + PAGE]))
        found += await client.read_task_runs(task_run_filter=wanted, limit=PAGE)
    return {run.id: run.state for run in found if run.state is not None}


def prefect_task(name: str) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]:
    """Turn a coroutine function into a Prefect task that is never cached, and whose end is reported."""

    def decorate(body: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.cache
        def wrapped() -> Any:
            from prefect import task
            from prefect.cache_policies import NO_CACHE

            return task(name=name, task_run_name=name, persist_result=False, cache_policy=NO_CACHE)(body)

        @functools.wraps(body)
        async def call(*given: Any, **named: Any) -> Any:
            state = await reported(wrapped()(*given, **named, return_state=True))
            return await state.aresult()

        return call

    return decorate
