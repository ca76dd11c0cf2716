"""Who looks on while a run of the command line goes on, and the ways in which they may stop it: Ctrl-C, SIGTERM, or
Cancel in the Prefect UI."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from prefect.exceptions import TerminationSignal

from flows.home import Home
from tasks.engine.fork_server import ForkServer
from tasks.errors import Interrupted
from tasks.stage.session import Session, StageWatcher

STOPPED = (Interrupted, KeyboardInterrupt, asyncio.CancelledError, TerminationSignal)
"""What ends a run because someone wanted it to end: Ctrl-C, a signal to an engine, a cancelled task, SIGTERM to a
worker."""

LOOK = 5.0  # seconds between two questions whether someone pressed Cancel


@dataclass
class Onlooker:
    """What the command line adds to a run: the home folder, a watcher, stages to force, and the plan that was made
    before."""

    home: Home
    watcher: StageWatcher | None = None
    force: frozenset[str] = frozenset()
    plan: Session | None = None
    """The walk before the run: its store is open already, and what it found need not be looked for again."""
    engines: ForkServer | None = None
    """What this run's engines are forked from, if it was started while the run was planned."""
    command: str = ""
    """The command as it was typed, if there was one."""
    cancelled: UUID | None = None
    """The flow run that someone cancelled in the Prefect UI."""


ONLOOKER: ContextVar[Onlooker | None] = ContextVar("onlooker", default=None)


@contextlib.contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM stop a run of the command line as Ctrl-C does, in order.

    Prefect's own handler, for its workers, raises wherever the loop happens to be, and nothing below gets the time to
    stop. Every subflow that begins puts it in place once more, and asks its server a few things before its body runs:
    so it is Prefect's that is replaced, for the length of the run.
    """
    from prefect.utilities import engine

    if ONLOOKER.get() is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, run = asyncio.get_running_loop(), asyncio.current_task()
    assert run is not None
    theirs, before = engine._prefect_sigterm_handler, signal.getsignal(signal.SIGTERM)
    engine._prefect_sigterm_handler = lambda number, *_: loop.call_soon_threadsafe(run.cancel)  # type: ignore[assignment]
    signal.signal(signal.SIGTERM, engine._prefect_sigterm_handler)
    try:
        yield
    finally:
        engine._prefect_sigterm_handler = theirs
        signal.signal(signal.SIGTERM, before)


@asynccontextmanager
async def stopped_by_prefect() -> AsyncIterator[None]:
    """Let Cancel in the Prefect UI stop a run of the command line: it is no worker's run, so nobody else listens."""
    from prefect.runtime import flow_run

    onlooker, run = ONLOOKER.get(), asyncio.current_task()
    if onlooker is None or run is None or not flow_run.id:
        yield
        return
    listening = asyncio.ensure_future(listen(onlooker, run, UUID(str(flow_run.id))))
    try:
        yield
    finally:
        listening.cancel()


async def listen(onlooker: Onlooker, run: asyncio.Task[Any], flow_run: UUID) -> None:
    """Ask Prefect again and again whether the run is to end; a server that does not answer is asked later."""
    from prefect.client.orchestration import get_client

    while True:
        await asyncio.sleep(LOOK)
        with contextlib.suppress(Exception):
            async with get_client() as client:
                state = (await client.read_flow_run(flow_run)).state
            if state is not None and (state.is_cancelling() or state.is_cancelled()):
                onlooker.cancelled = flow_run
                run.cancel()
                return


async def confirm(flow_run: UUID) -> None:
    """Tell Prefect that a run has ended because someone cancelled it, and its subflows with it; by itself it would call
    them crashed."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
    from prefect.client.schemas.sorting import FlowRunSort
    from prefect.states import Cancelled

    own = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run]))
    async with get_client() as client:
        below = await client.read_flow_runs(flow_run_filter=own, sort=FlowRunSort.START_TIME_DESC, limit=200)
        stopped = [run.id for run in below if run.state is None or not run.state.is_completed()]
        for run in (*stopped, flow_run):
            await client.set_flow_run_state(run, Cancelled(message="stopped at its last checkpoint"), force=True)
