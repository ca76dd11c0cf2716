"""``limbeck ui``: Prefect and MLflow on this machine, as two process groups that start and stop together."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from rich.console import Console

from flows.home import Home
from tasks.errors import EngineError

PATIENCE = 120.0  # seconds for a first start, which migrates its database


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


def prefect_command(port: int) -> list[str]:
    """Return the command of the Prefect server."""
    return [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]


def mlflow_command(home: Home, port: int) -> list[str]:
    """Return the command of the MLflow server, on the databases and artifacts of this home."""
    return [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
            "--backend-store-uri", home.own_tracking_uri, "--artifacts-destination", str(home.artifacts)]  # fmt: skip


def start(home: Home, name: str, command: list[str], extra: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start one server in a process group of its own, its output in a log file."""
    logs = home.root / "logs"
    logs.mkdir(exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if key not in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")} | extra
    with (logs / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers."""
    limit = time.monotonic() + PATIENCE
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
