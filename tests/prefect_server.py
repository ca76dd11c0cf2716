"""A Prefect server of a test's own, as a process on 127.0.0.1, with a password: what is deployed to it disturbs no
other test."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from flows.home import Home
from flows.servers.local import Server, listening, running
from flows.servers.worker_tokens import WORKERS_AUTH
from tasks.ports.tracking.tracker import Tracker
from tests.databases import copy_prefect, folder_of_session, keep_prefect, locked

ROOT = Path(__file__).resolve().parents[1]
LAZY = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "500",
}
"""Settings by which a server writes what it hears in batches: one by one, its writing takes half of its processor
time. The interval is a whole number of seconds: of 0.4 Prefect makes 0, and never sleeps."""
WATCHING = ("LATE_RUNS", "PAUSE_EXPIRATIONS", "FOREMAN", "CANCELLATION_CLEANUP", "REPOSSESSOR", "CLEANUP_RECONCILER")
IDLE = {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in WATCHING}
"""Settings of a server whose tests need its scheduler, and nothing else that asks its database every few seconds."""
WORKER = "limbeck-worker:its-own-token"
"""What the workers beside a server of the tests send, as those of a stack do."""
PATIENCE = 400.0  # longer than a person would wait: on a busy machine a new database takes minutes


@contextlib.contextmanager
def prefect_server_of_our_own(**more: str) -> Iterator[dict[str, str]]:
    """Run a server; yield what a client's environment says of it."""
    with (
        tempfile.TemporaryDirectory(prefix="limbeck-prefect-") as folder,
        guarded(Home(Path(folder)), "prefect", **more) as server,
    ):
        yield server.client


@contextlib.contextmanager
def prefect_server_of_the_session(**more: str) -> Iterator[dict[str, str]]:
    """Yield what a client's environment says of one server for all of pytest's workers: who asks first starts it, and
    ends it when nobody uses it any longer.

    Other tests run flows there at the same time, also with the names of ours: a test finds its own by
    :func:`newest_flow_run`.
    """
    folder = folder_of_session()
    told = folder / "prefect-server.json"
    with contextlib.ExitStack() as held:
        with locked(folder / "prefect-server.lock"):
            starts = not told.exists()
            if starts:
                client = held.enter_context(prefect_server_of_our_own(**more))
                users = folder / f"prefect-server-{os.getpid()}.users"
                told.write_text(json.dumps({"client": client, "users": str(users)}))
            known = json.loads(told.read_text())
            using = held.enter_context(Path(known["users"]).open("a"))
            fcntl.flock(using, fcntl.LOCK_SH)
        yield known["client"]
        if starts:
            with locked(folder / "prefect-server.lock"):
                told.unlink()  # who asks from now on starts the next one
            fcntl.flock(using, fcntl.LOCK_EX)  # waits for those who still use this one


def newest_flow_run(home: Home) -> UUID:
    """Return the flow run in Prefect of a home's newest run, which MLflow has in a tag. No other test runs there."""
    tracker = Tracker(home.own_tracking_uri, None)
    return UUID(tracker.client.get_run(tracker.runs(1)[0]["run"]).data.tags["prefect.flow_run_id"])


@contextlib.contextmanager
def guarded(home: Home, name: str, **more: str) -> Iterator[Server]:
    """Run a server of a home as we start all of them: with a password of its own, behind the guard."""
    database = home.root / "prefect.db"
    makes_tables = name == "prefect" and not database.exists() and not copy_prefect(database)
    own = {
        "PREFECT_HOME": f"{home.root}/prefect",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        WORKERS_AUTH: WORKER,
    }
    with listening(name, 0) as taken, running(home, name, taken, links=True, extra=own | more) as server:
        server.wait(PATIENCE)
        if makes_tables:
            keep_prefect(database)
        yield server


@contextlib.contextmanager
def worker(environment: dict[str, str], log: Path, pool: str = "cpu") -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker of a pool, as a person would start it; its flow runs end with it."""
    command = [sys.executable, "-P", "-m", "prefect", "worker", "start", "--pool", pool]
    known = {**os.environ, **environment, "PYTHONPATH": str(ROOT), "PREFECT_WORKER_QUERY_SECONDS": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=known, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        time.sleep(2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
