"""Servers on this machine: ``limbeck ui`` serves Prefect and MLflow until Ctrl-C; a run without a Prefect server gets one of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from flows.home import Home
from tasks.errors import EngineError
from tasks.job import die_with_parent

PATIENCE = 120.0  # seconds for a first start, which migrates its database

LAST_WORDS = 10.0  # seconds that Prefect's log lines and events get to reach the server before it is stopped


def serve(home: Home, prefect_port: int, mlflow_port: int, console: Console) -> None:
    """Start both servers, say their addresses, wait until someone stops them, and stop both."""
    urls = {"prefect": f"http://127.0.0.1:{prefect_port}", "mlflow": f"http://127.0.0.1:{mlflow_port}"}
    home.prepare_environment()
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(start(home, "prefect", prefect_command(prefect_port), {"PREFECT_SERVER_UI_API_URL": urls["prefect"] + "/api"}))
        started.append(start(home, "mlflow", mlflow_command(home, mlflow_port), {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}))
        wait_for(urls["prefect"] + "/api/health", started[0], home.root / "logs" / "prefect.log")
        wait_for(urls["mlflow"] + "/health", started[1], home.root / "logs" / "mlflow.log")
        home.servers_file.write_text(json.dumps(urls))
        console.print(f"Prefect  {urls['prefect']}\nMLflow   {urls['mlflow']}   (choose 'Model training' there)\nCtrl-C stops both.", highlight=False)
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        while all(process.poll() is None for process in started):
            time.sleep(0.5)
        raise EngineError(f"a server stopped; its log is in {home.root / 'logs'}")
    except KeyboardInterrupt:
        console.print("stopping")
    finally:
        home.servers_file.unlink(missing_ok=True)
        for process in started:
            stop(process)


@contextlib.contextmanager
def prefect_for_a_run(home: Home) -> Iterator[Callable[[], None]]:
    """Give a run a Prefect server of its own, unless one is named already; yield a function that waits until it answers.

    Prefect would start one itself, but in the terminal's process group: Ctrl-C would end it before the run could say how it ended.
    To be entered before Prefect is imported, which takes as long as the server needs to start.
    """
    if "PREFECT_API_URL" in os.environ:
        yield lambda: None
        return
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = start(home, f"prefect-{port}", prefect_command(port), {"PREFECT_SERVER_UI_API_URL": url + "/api"})
    log = home.root / "logs" / f"prefect-{port}.log"
    os.environ["PREFECT_API_URL"] = url + "/api"
    try:
        yield lambda: wait_for(url + "/api/health", process, log)
    finally:
        hand_over()
        del os.environ["PREFECT_API_URL"]
        stop(process)
        log.unlink(missing_ok=True)


def hand_over() -> None:
    """Send the log lines and events that Prefect still holds; without their server it would try for a minute at exit."""
    if "prefect" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=LAST_WORDS)


def free_port() -> int:
    """Return a port on the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def prefect_command(port: int) -> list[str]:
    """Return the command of the Prefect server; ``-P``, because a file named like a library may lie where the user stands."""
    return [sys.executable, "-P", "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]


def mlflow_command(home: Home, port: int) -> list[str]:
    """Return the command of the MLflow server, on the databases and artifacts of this home."""
    return [sys.executable, "-P", "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
            "--backend-store-uri", home.own_tracking_uri, "--artifacts-destination", str(home.artifacts)]  # fmt: skip


def start(home: Home, name: str, command: list[str], extra: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start one server in a process group of its own, its output in a log file."""
    logs = home.root / "logs"
    logs.mkdir(exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if key not in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")} | extra
    with (logs / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True, preexec_fn=die_with_parent
        )


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path, patience: float = PATIENCE) -> None:
    """Wait until a server answers."""
    limit = time.monotonic() + patience
    while time.monotonic() < limit and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.3)
    raise EngineError(f"the server at {url} did not start; is the port taken? its log is {log}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a server and everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
