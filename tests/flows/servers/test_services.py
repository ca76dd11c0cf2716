"""Prefect's services in a process of their own; real ones, with PostgreSQL and Redis, run in ``tests/flows/stack``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.flows.stack.running import ROOT
from tests.web_server import free_port

PATIENCE = 120.0


def test_the_services_start_on_their_event_loop_and_end_when_they_are_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    told = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect"), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as written:
        command = [sys.executable, "-P", "-m", "flows.servers.services"]
        process = subprocess.Popen(command, env=told, stdout=written, stderr=written, cwd=tmp_path)
    try:
        until = time.monotonic() + PATIENCE
        while "Starting services" not in log.read_text():
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        assert "/uvloop/loop" in Path(f"/proc/{process.pid}/maps").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == -signal.SIGTERM, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_a_process_one_of_whose_services_fails_ends(tmp_path: Path) -> None:
    """Nobody answers where its database should be; Prefect would go on without the automations."""
    database = f"postgresql+asyncpg://nobody:nothing@127.0.0.1:{free_port()}/nowhere"
    told = {
        **os.environ,
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_API_DATABASE_CONNECTION_URL": database,
        "PYTHONPATH": str(ROOT),
    }
    says = "from flows.servers import service_ends, services; service_ends.SECONDS_TO_LIVE = 0.5; services.main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", says], env=told, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE
    )
    assert done.returncode == 1, done.stderr
    assert "has failed; this process ends in 0.5 seconds" in done.stderr + done.stdout
