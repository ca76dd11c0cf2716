"""Watch over a run's own Prefect server: a server that dies is restarted; if no restart succeeds, the run ends in
order.

Stages do not need Prefect to compute. While the server is away they continue, Prefect's client retries for a minute,
and events wait. If no restart succeeds, the run is cancelled as by Ctrl-C: engines save their checkpoints, the end is
reported to MLflow, and unsent data of Prefect is not waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from flows.servers.access import Access
from tasks.errors import LimbeckError, ServerError

SERVER_CHECK_SECONDS = 0.5  # seconds between two checks of the server
# consecutive checks that find a server stopped (SIGSTOP) before it is replaced; checks, not seconds: a run that is
# stopped itself makes no checks
PAUSED = 20
RESTARTS = 5  # restarts of its server in one run
# seconds, about, that an event waits for a restarted server; Prefect's own ten attempts end before a restart does
EVENT_PATIENCE = 300
LAST_WORDS = 10.0  # seconds for Prefect's log lines and events to reach the server before the run ends
ANSWER = 15.0  # seconds in which a configured server must answer before a run begins
LOST = (
    "the Prefect server of this run ended{how}, and could not be restarted; finished stages are cached, and the "
    "engines have saved their checkpoints: run the same command again to continue"
)


class Started(Protocol):
    """A server process; ``wait`` returns once it answers, and raises EngineError if it does not."""

    process: subprocess.Popen[bytes]
    access: Access

    def wait(self) -> None:
        """Wait until it answers."""


class OwnServer:
    """The server of this run; ``start`` starts one at the same address, ``give_up`` closes that address permanently."""

    def __init__(self, start: Callable[[], Started], give_up: Callable[[], None]) -> None:
        self.start, self.give_up = start, give_up
        self.server = start()
        self.lost = ""
        """The reason for the server's loss, as a sentence; empty while a server is running or starting."""
        self.restarts = 0
        """Number of restarts so far."""
        self.work: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self.settings: Any = None
        self.retries: int | None = None
        """Prefect's setting for retries before the loss of the server; restored at the end, because later requests of
        this process go to other servers."""
        self.changing = threading.Lock()
        self.leaving, self.closed = threading.Event(), threading.Event()
        self.watcher: threading.Thread | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The current server process."""
        return self.server.process

    def ready(self) -> None:
        """Wait until the server answers, then start watching it; later calls do nothing."""
        if self.watcher is None:
            self.server.wait()
            self.watcher = threading.Thread(target=self.watch, name="prefect-server-watch", daemon=True)
            self.watcher.start()

    def watch(self) -> None:
        """Check the server until it is closed. This thread must outlive the servers that it starts: a server receives
        its death signal when the thread that started it ends."""
        paused = 0
        while not self.closed.wait(SERVER_CHECK_SECONDS):
            if self.leaving.is_set() or self.lost:
                continue
            paused = paused + 1 if is_paused(self.process.pid) else 0
            if self.process.poll() is not None or paused >= PAUSED:
                how = f" (status {self.process.returncode})" if self.process.poll() is not None else " (it was stopped)"
                self.restarts, paused = self.restarts + 1, 0
                if self.restarts > RESTARTS or not self.replace():
                    self.lose(how)
                elif not self.leaving.is_set():
                    logging.getLogger("limbeck").warning(
                        "the Prefect server of this run ended%s and was restarted", how
                    )

    def replace(self) -> bool:
        """Restart the server with the same address and database; return whether it answers."""
        kill_group(self.process)
        try:
            with self.changing:
                if self.leaving.is_set():
                    return True
                self.server = self.start()
            self.server.wait()
        except (OSError, subprocess.SubprocessError, LimbeckError):
            return self.leaving.is_set()
        return True

    def lose(self, how: str) -> None:
        """Give up on the server: requests stop waiting for it, and the current work is cancelled."""
        self.lost = LOST.format(how=how)
        self.give_up()  # a request to an open port would wait for ever
        logging.raiseExceptions = False  # Prefect's handler would print each line that it cannot send
        if self.settings is not None:
            self.retries, self.settings.client.max_retries = self.settings.client.max_retries, 0
        if self.work is not None:
            loop, task = self.work
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(task.cancel)

    @contextlib.contextmanager
    def doing(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """Cancel a task if the server is lost; until then, events wait for a restarted server."""
        from prefect.events.clients import PrefectEventsClient
        from prefect.events.worker import EventsWorker
        from prefect.settings import get_current_settings

        EventsWorker.set_client_override(PrefectEventsClient, reconnection_attempts=EVENT_PATIENCE)
        self.settings = get_current_settings()
        self.work = (asyncio.get_running_loop(), task)
        try:
            if self.lost:
                raise ServerError(self.lost)
            yield
        finally:
            self.work = None
            EventsWorker.set_client_override(None)

    def may_have_lost_ends(self) -> bool:
        """Return whether a dead server may have lost accepted ends of tasks, and a server can accept them again."""
        return not self.lost and (self.restarts > 0 or self.process.poll() is not None)

    def leave(self) -> float:
        """Stop restarting the server, because the run is over; return the seconds to wait for Prefect's unsent data."""
        with self.changing:
            self.leaving.set()
        if self.retries is not None:
            self.settings.client.max_retries = self.retries
        is_there = not self.lost and self.process.poll() is None and not is_paused(self.process.pid)
        return LAST_WORDS if is_there else 0.0


SERVER: ContextVar[OwnServer | None] = ContextVar("own-prefect-server", default=None)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine like ``asyncio.run``; cancel it if the run's own server is lost."""
    server = SERVER.get()

    async def watched() -> Any:
        from tasks.stage.task_ends import collected_ends, report_again

        task = asyncio.current_task()
        assert task is not None
        with server.doing(task) if server is not None else contextlib.nullcontext(), collected_ends() as ended:
            try:
                return await work
            finally:
                if server is not None and server.may_have_lost_ends():
                    await report_again(ended)

    return asyncio.run(watched())


def login_to_own_server(page: str) -> str:
    """Return a link to a page of the run's own server that logs a browser in, once; for other servers, the page."""
    server = SERVER.get()
    return page if server is None else server.server.access.link(urlsplit(page).path)


def is_lost() -> bool:
    """Return whether the run ends because its own server is lost."""
    server = SERVER.get()
    return server is not None and bool(server.lost)


@contextlib.contextmanager
def in_a_sentence(server: OwnServer | None) -> Iterator[None]:
    """Replace errors caused by a lost or silent Prefect server with a ServerError of one sentence.

    A LimbeckError among the causes takes precedence.
    """
    token = SERVER.set(server)
    try:
        yield
    except BaseException as error:
        own = next((one for one in chain_of(error) if isinstance(one, LimbeckError)), None)
        if own is not None:
            raise own from None
        if server is not None and server.lost:
            raise ServerError(server.lost) from error
        if is_from_prefect(error):
            raise ServerError(unreachable(os.environ.get("PREFECT_API_URL", ""), error)) from error
        raise
    finally:
        SERVER.reset(token)


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_from_prefect(error: BaseException) -> bool:
    """Return whether an error comes from Prefect's client: no server, a refusal, or a foreign server."""
    if "prefect" not in sys.modules:
        return False
    import httpx

    return isinstance(error, (httpx.HTTPError, httpx.InvalidURL)) or (
        isinstance(error, RuntimeError) and "Failed to reach API" in str(error)
    )


def unreachable(url: str, error: BaseException) -> str:
    """Return a message about a server that does not answer or refuses; it contains no password."""
    from tasks.ports.tracking.client import without_secrets

    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        advice = "set PREFECT_API_AUTH_STRING to user:password of that server"
        return without_secrets(f"the Prefect server at {url} refuses this password (status {status}); {advice}")
    said = f"status {status}" if status else next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return without_secrets(
        f"there is no Prefect server at {url} ({said}); start it, or correct or unset PREFECT_API_URL; finished "
        f"stages are cached"
    )


def require_prefect() -> None:
    """Raise ServerError if the configured server does not answer, before any computation starts."""
    with in_a_sentence(None):
        asyncio.run(ask_prefect())


async def ask_prefect() -> None:
    """Ask the configured server for its version, once: Prefect itself would retry for minutes.

    Raises httpx.HTTPError if there is no answer.
    """
    import httpx
    from prefect.client.base import ServerType
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
        async with get_client(httpx_settings={"timeout": ANSWER}) as client:
            if client.server_type == ServerType.CLOUD:
                return
            try:
                version = str(await client.api_version())
            except ValueError:  # no JSON
                version = ""
            if not version[:1].isdecimal():
                raise httpx.DecodingError("the response contains no version of Prefect")


def let_go(patience: float = LAST_WORDS) -> None:
    """Send unsent log lines and events of Prefect for at most so many seconds, then drop the rest: otherwise the
    process would retry each at its exit."""
    if "prefect" not in sys.modules:
        return
    from prefect._internal.concurrency.services import _active_services
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    # users need no message about the data dropped below
    logging.getLogger("prefect._internal.concurrency").setLevel(logging.CRITICAL)
    services = [
        (service, service._loop, service._task) for service in list(_active_services) if service._loop and service._task
    ]
    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=patience)
    for service, loop, task in services:
        if not task.done() and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)
            service._stop()


def is_paused(pid: int) -> bool:
    """Return whether a process is stopped by a signal; always False outside of Linux."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a server and its child processes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
