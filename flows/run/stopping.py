"""Options of a run from the command line, and the ways to stop it: Ctrl-C, SIGTERM, or Cancel in the Prefect UI."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from flows.home import Home
from tasks.engine.fork_server import ForkServer
from tasks.errors import Interrupted
from tasks.stage.session import Session, StageWatcher

LEFT_OPEN = ("pending", "waiting", "running", "stopped")
"""States of the stages that a stopped run leaves without a result."""
CANCEL_POLL_SECONDS = 5.0  # seconds between two checks for Cancel in the Prefect UI


@dataclass
class RunOptions:
    """Options of a run from the command line: home folder, watcher, stages to force, and the plan computed before."""

    home: Home
    watcher: StageWatcher | None = None
    force: frozenset[str] = frozenset()
    plan: Session | None = None
    """The session of the plan: its store is open already, and its findings are reused."""
    engines: ForkServer | None = None
    """The server that this run's engines are forked from, if it was started while the run was planned."""
    command: str = ""
    """The command as it was typed, if there was one."""
    cancelled: UUID | None = None
    """The flow run that was cancelled in the Prefect UI."""


RUN_OPTIONS: ContextVar[RunOptions | None] = ContextVar("run-options", default=None)


def is_stop(error: BaseException) -> bool:
    """Return whether an exception ends a run that was stopped on purpose: by Ctrl-C, a signal to an engine, a cancelled
    task, or SIGTERM to a worker."""
    return isinstance(error, (Interrupted, KeyboardInterrupt, asyncio.CancelledError)) or is_termination(error)


def is_termination(error: BaseException) -> bool:
    """Return whether an exception is Prefect's own for SIGTERM to a worker."""
    from prefect.exceptions import TerminationSignal

    return isinstance(error, TerminationSignal)


@contextlib.contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM stop a run in order, as Ctrl-C does: every run of the command line, and one on a worker that was
    cancelled in the Prefect UI.

    Prefect's own handler raises at any point of the event loop and leaves branches no time to stop; a cancelled run
    would end with tasks that crashed. Every starting subflow installs it again, before requests to the server and
    before its own body. Therefore Prefect's handler itself is replaced for the duration of the run.
    """
    from prefect._internal.control_listener import get_intent
    from prefect.utilities import engine

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    of_command_line = RUN_OPTIONS.get() is not None
    loop, run = asyncio.get_running_loop(), asyncio.current_task()
    assert run is not None
    theirs, before = engine._prefect_sigterm_handler, signal.getsignal(signal.SIGTERM)

    def handle(number: int, *rest: object) -> None:
        if not of_command_line and get_intent() != "cancel":
            theirs(number, *rest)
        if not of_command_line:
            expect_cancellation()  # to the end of this process, which has this run alone
        loop.call_soon_threadsafe(run.cancel)

    engine._prefect_sigterm_handler = handle  # type: ignore[assignment]
    signal.signal(signal.SIGTERM, engine._prefect_sigterm_handler)
    try:
        yield
    finally:
        engine._prefect_sigterm_handler = theirs
        signal.signal(signal.SIGTERM, before)


@asynccontextmanager
async def stopped_by_prefect() -> AsyncIterator[None]:
    """Let Cancel in the Prefect UI stop a run of the command line, for which no worker listens."""
    from prefect.runtime import flow_run

    options, run = RUN_OPTIONS.get(), asyncio.current_task()
    if options is None or run is None or not flow_run.id:
        yield
        return
    listening = asyncio.ensure_future(listen(options, run, UUID(str(flow_run.id))))
    try:
        yield
    finally:
        listening.cancel()


async def listen(options: RunOptions, run: asyncio.Task[Any], flow_run: UUID) -> None:
    """Poll Prefect, and cancel the run when its flow run is cancelled; a silent server is polled again later."""
    from prefect.client.orchestration import get_client

    while True:
        await asyncio.sleep(CANCEL_POLL_SECONDS)
        with contextlib.suppress(Exception):
            async with get_client() as client:
                state = (await client.read_flow_run(flow_run)).state
            if state is not None and (state.is_cancelling() or state.is_cancelled()):
                options.cancelled = flow_run
                expect_cancellation()
                run.cancel()
                return


class CancelledInOrder(logging.Filter):
    """Rewrites the end of a cancelled run in its log: Prefect calls all that is stopped from outside a crash."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop a message about a crash, and let that about the final state tell what happened."""
        said = record.getMessage()
        if said.startswith("Crash detected!"):
            return False
        if record.levelno >= logging.ERROR and said.startswith("Finished in state"):
            record.msg, record.args = "Stopped: its run was cancelled", ()
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        return True


IN_ORDER = CancelledInOrder()
RUN_LOGGERS = ("prefect.flow_runs", "prefect.task_runs")


def expect_cancellation() -> None:
    """Write from now on into the logs of runs that they were cancelled, instead of crashes."""
    for name in RUN_LOGGERS:
        logging.getLogger(name).addFilter(IN_ORDER)


def forget_cancellation() -> None:
    """Let the logs of later runs of this process tell of crashes again."""
    for name in RUN_LOGGERS:
        logging.getLogger(name).removeFilter(IN_ORDER)


async def cancel_tasks(session: Session) -> None:
    """Set the unfinished tasks of a cancelled run to Cancelled in Prefect, which calls them crashed."""
    from prefect.client.orchestration import get_client

    stopped = [record.task_run for record in session.records if record.task_run and record.state in LEFT_OPEN]
    with contextlib.suppress(Exception):  # the end of the run matters more than the names of its tasks' states
        async with get_client() as client:
            for run in stopped:
                await client.set_task_run_state(UUID(run), cancelled_in_order(), force=True)


async def confirm(flow_run: UUID) -> None:
    """Set a cancelled run and its unfinished branches to Cancelled in Prefect, which would otherwise call them
    crashed."""
    from prefect.client.orchestration import get_client

    await cancel_subflows(flow_run)
    async with get_client() as client:
        await client.set_flow_run_state(flow_run, cancelled_in_order(), force=True)


async def cancel_subflows(flow_run: UUID) -> None:
    """Set the unfinished branches of a cancelled run to Cancelled.

    Its stages in a pool, which are flow runs of a deployment, stay Cancelling until their workers have ended them: a
    worker that learns of it late ends nothing that is Cancelled already.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
    from prefect.client.schemas.sorting import FlowRunSort

    own = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run]))
    async with get_client() as client:
        below = await client.read_flow_runs(flow_run_filter=own, sort=FlowRunSort.START_TIME_DESC, limit=200)
        for run in below:
            is_done = run.state is not None and run.state.is_completed()
            if run.deployment_id is None and not is_done:
                await client.set_flow_run_state(run.id, cancelled_in_order(), force=True)


def cancelled_in_order() -> Any:
    """Return the state of a run that was cancelled and has stopped."""
    from prefect.states import Cancelled

    return Cancelled(message="stopped at its last checkpoint")
