"""A champion, served by MLflow's own scoring server: a real request gets the task's label names, a wrong one is
refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports.tracking.test_tracker import NAME, TEXT, checkpoint, moved, new_tracker, registered
from tests.web_server import free_port

__all__ = ["checkpoint", "registered"]  # fixtures

PATIENCE = 240.0  # seconds for a first start, which loads torch


@pytest.fixture
def served(registered: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Serve the champion of a registry as its users would; the whole process group is stopped again."""
    home, port = moved(registered, tmp_path), free_port()
    command = [
        sys.executable,
        "-P",
        "-m",
        "mlflow",
        "models",
        "serve",
        "-m",
        f"models:/{NAME}@champion",
        "--env-manager",
        "local",
        "--port",
        str(port),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "MLFLOW_TRACKING_URI": f"sqlite:///{home / 'mlflow.db'}",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    log = tmp_path / "serve.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/ping", process, log)
        yield f"http://127.0.0.1:{port}/invocations", home
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            return urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.3)
    raise AssertionError(log.read_text()[-2000:])


def ask(url: str, body: bytes) -> tuple[int, Any]:
    """Send a request; return the status and what was answered."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_a_served_champion_answers_with_the_labels_of_its_task(served: tuple[str, Path], tmp_path: Path) -> None:
    url, home = served
    status, said = ask(url, json.dumps({"inputs": [TEXT, "a bad film"]}).encode())
    assert status == 200 and len(said["predictions"]) == 2
    assert {answer["label"] for answer in said["predictions"]} <= {"good", "bad"} and all(
        0.5 <= answer["score"] <= 1 for answer in said["predictions"]
    )
    status, said = ask(url, json.dumps({"inputs": [f"{TEXT} " * 200]}).encode())
    assert status == 200 and len(said["predictions"]) == 1, "a text beyond the model's positions is truncated"
    for wrong in (b"no json", b'{"nothing": 1}', json.dumps({"inputs": [[1, 2]]}).encode()):
        status, said = ask(url, wrong)
        assert status == 400 and "error" in said.lower()
    new_tracker(home).download(NAME, "champion", tmp_path / "model")  # serving leaves the stored model what it was
