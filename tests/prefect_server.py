"""A Prefect server of a test's own, as a process on 127.0.0.1, with a password: what is deployed to it disturbs no other test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from flows.home import Home
from flows.servers import free_port, prefect_command, start, stop, wait_for

ROOT = Path(__file__).resolve().parents[1]
PASSWORD = "limbeck:only-for-this-test"
PATIENCE = 400.0  # longer than a person would wait: on a busy machine a new database takes minutes


@contextlib.contextmanager
def prefect_server_of_our_own() -> Iterator[dict[str, str]]:
    """Run a server; yield what a client's environment says of it."""
    with tempfile.TemporaryDirectory(prefix="limbeck-prefect-") as folder:
        home, port = Home(Path(folder)), free_port()
        url = f"http://127.0.0.1:{port}/api"
        own = {"PREFECT_HOME": f"{folder}/prefect", "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder}/prefect.db",
               "PREFECT_SERVER_API_AUTH_STRING": PASSWORD, "PREFECT_SERVER_UI_API_URL": url, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}  # fmt: skip
        process = start(home, "prefect", prefect_command(port), own)
        try:
            wait_for(f"{url}/health", process, home.root / "logs" / "prefect.log", PATIENCE)
            yield {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": PASSWORD}
        finally:
            stop(process)


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
