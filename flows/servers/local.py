"""Servers on this machine: ``limbeck ui`` serves Prefect and MLflow until Ctrl-C; a run without a Prefect server starts
one of its own.

Every start generates a password, which Limbeck's own processes receive in their environment. A port is bound here
before its server starts, and handed to it: so no other program can answer there, and a taken port is reported at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from flows.home import Home
from flows.servers.access import Access, client_of, read_servers, write_servers
from flows.servers.watch import LAST_WORDS, OwnServer, in_a_sentence, let_go, require_prefect
from flows.servers.workspaces import sweep_workspaces
from tasks.engine.job import die_with_parent
from tasks.errors import EngineError

FIRST_START_SECONDS = 120.0  # seconds for a first start, which migrates its database
ANSWER = 5.0  # seconds for one answer of a server that is starting
WAITING = 128  # connections that may wait until a starting server accepts them
NOT_A_SERVERS = (
    "PREFECT_API_URL",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_API_KEY",
    "PREFECT_SERVER_API_AUTH_STRING",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
)
"""Client settings that a server must not inherit."""
OPTIONS = {"prefect": "--prefect-port", "mlflow": "--mlflow-port"}
NAMES = {"prefect": "Prefect", "mlflow": "MLflow"}


@dataclass
class Server:
    """A server started here, with the access data for its clients."""

    name: str
    access: Access
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self, patience: float = FIRST_START_SECONDS) -> None:
        """Wait until the server answers and proves its password; raise EngineError after ``patience`` seconds."""
        limit = time.monotonic() + patience
        while time.monotonic() < limit and self.process.poll() is None:
            if self.access.is_proved(ANSWER):
                return
            time.sleep(0.1)
        ended = self.process.poll() is not None
        why = (
            "ended while it started" if ended else f"did not answer within {patience:.0f} seconds at {self.access.url}"
        )
        busy = "" if ended else "; this machine may be too busy: run the same command again"
        raise EngineError(f"{NAMES[self.name]} {why}{busy}; its log is {self.log}")

    @property
    def client(self) -> dict[str, str]:
        """The environment variables of a client."""
        return client_of(self.name, self.access)


def serve(home: Home, prefect_port: int, mlflow_port: int, console: Console) -> None:
    """Start both servers, print their addresses, and stop both when one ends or the command is stopped."""
    with only_servers_of(home), contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as started:
        sweep_workspaces([Path(tempfile.gettempdir())])
        sockets = {
            "prefect": started.enter_context(listening("prefect", prefect_port)),
            "mlflow": started.enter_context(listening("mlflow", mlflow_port)),
        }
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        servers = {
            name: started.enter_context(running(home, name, taken, links=True)) for name, taken in sockets.items()
        }
        for server in servers.values():
            server.wait()
        write_servers(home.servers_file, {name: server.access for name, server in servers.items()}, os.getpid())
        started.callback(home.servers_file.unlink, missing_ok=True)
        console.print(
            how_to_use({name: server.access for name, server in servers.items()}),
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        while all(server.process.poll() is None for server in servers.values()):
            time.sleep(0.5)
        raise EngineError(f"a server stopped; its log is in {home.root / 'logs'}")
    console.print("stopping")


def how_to_use(servers: Mapping[str, Access]) -> str:
    """Return a text with the servers' addresses and the ways to log in for browsers and programs."""
    return "\n".join(
        [
            f"Prefect  {servers['prefect'].url}   log in once by: {servers['prefect'].link()}",
            f"MLflow   {servers['mlflow'].url}   log in once by: {servers['mlflow'].link()}",
            "         (choose 'Model training')",
            "limbeck commands of this home use both automatically. For other programs, for example a worker:",
            '  eval "$(limbeck env)" && prefect worker start --pool cpu',
            "Ctrl-C stops both.",
        ]
    )


@contextlib.contextmanager
def only_servers_of(home: Home) -> Iterator[None]:
    """Hold the lock of a home's ``limbeck ui``; refuse a second one, with links that log in to the first.

    The kernel releases the lock when its holder ends.
    """
    with os.fdopen(os.open(home.root / ".servers.lock", os.O_WRONLY | os.O_CREAT, 0o600), "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            there = read_servers(home.servers_file)
            if not there:
                raise EngineError(
                    f"limbeck ui of {home.root} is starting in another terminal; wait for it, or stop it in that "
                    f"terminal"
                ) from None
            links = f"Prefect by {there['prefect'].link()} and to MLflow by {there['mlflow'].link()}"
            raise EngineError(
                f"limbeck ui of {home.root} is already running: open {links}; to stop it, press Ctrl-C in its terminal"
            ) from None
        home.servers_file.unlink(missing_ok=True)  # left by a killed limbeck ui
        yield


@contextlib.contextmanager
def listening(name: str, port: int) -> Iterator[socket.socket]:
    """Listen on a port of the loopback address; raise EngineError with a remedy if it is taken."""
    taken = socket.socket()
    with taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
            taken.listen(WAITING)
        except OSError as error:
            why = (
                "is used by another program"
                if error.errno == errno.EADDRINUSE
                else f"cannot be used ({error.strerror})"
            )
            raise EngineError(
                f"port {port} for {NAMES[name]} {why}; stop the program that listens on it, or choose another port "
                f"with {OPTIONS[name]}"
            ) from error
        yield taken


@contextlib.contextmanager
def running(
    home: Home,
    name: str,
    taken: socket.socket,
    *,
    log: str = "",
    password: str = "",
    links: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server on a socket bound for it, until the end of the block."""
    access = Access(address(taken), password) if password else Access.new(address(taken))
    server = launch(home, name, access, taken, log=log or name, links=links, extra=extra)
    taken.close()  # the server has its own copy; after its end no client must wait here for an answer
    try:
        yield server
    finally:
        stop(server.process)


def launch(
    home: Home,
    name: str,
    access: Access,
    taken: socket.socket,
    *,
    log: str,
    links: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Server:
    """Start a server on a socket bound for it."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "flows.servers.serve",
        name,
        "--url",
        access.url,
        "--fd",
        str(taken.fileno()),
    ]
    given = {**server_environment(name, access), **(extra or {})}
    return Server(name, access, *start(home, log, [*command, *(["--links"] if links else [])], given, taken))


def address(taken: socket.socket) -> str:
    """Return the URL of a socket on the loopback address."""
    return f"http://127.0.0.1:{taken.getsockname()[1]}"


def server_environment(name: str, access: Access) -> dict[str, str]:
    """Return the environment variables that a server needs."""
    own = {"LIMBECK_SERVER_PASSWORD": access.password}
    return own if name == "mlflow" else {**own, "PREFECT_SERVER_UI_API_URL": f"{access.url}/api"}


@contextlib.contextmanager
def prefect_for_a_run(home: Home) -> Iterator[Callable[[], None]]:
    """Start a Prefect server for a run, unless PREFECT_API_URL names one; yield a function that waits for its answer.

    Prefect would start one itself, but in the terminal's process group: Ctrl-C would end it before the run could report
    its end. Enter this context before Prefect is imported: the import takes as long as the server's start.
    """
    if os.environ.get("PREFECT_API_URL", "").strip():
        try:
            require_prefect()
            with in_a_sentence(None):
                yield lambda: None
        finally:
            let_go(3 * LAST_WORDS)  # a team's server may come back; wait no longer than this at the end of a run
        return
    with listening("prefect", 0) as taken:
        access, log = Access.new(address(taken)), f"prefect-{taken.getsockname()[1]}"
        server = OwnServer(
            lambda: launch(home, "prefect", access, taken, log=log, links=True),
            # The port stays bound while its server restarts: requests wait there, and no other program can answer
            # them.
            give_up=taken.close,
        )
        known = client_of("prefect", access)
        before = {name: os.environ.get(name) for name in known}
        os.environ |= known
        try:
            with in_a_sentence(server):
                yield server.ready
        finally:
            let_go(server.leave())
            for name in before:
                del os.environ[name]
            os.environ |= {name: value for name, value in before.items() if value is not None}
            stop(server.process)
            server.closed.set()
            (home.root / "logs" / f"{log}.log").unlink(missing_ok=True)


def start(
    home: Home, name: str, command: list[str], extra: Mapping[str, str], taken: socket.socket
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start one server in a process group of its own, its output in a log file that only its owner can read."""
    path = home.root / "logs" / f"{name}.log"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if key not in NOT_A_SERVERS} | {
        "LIMBECK_HOME": str(home.root),
        **extra,
    }
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            preexec_fn=die_with_parent,
            pass_fds=(taken.fileno(),),
            umask=0o077,
        )
    return process, path


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a server and its child processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
