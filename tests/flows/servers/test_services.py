"""Prefect's services in a process of their own; real ones, with PostgreSQL and Redis, run in ``tests/flows/stack``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.flows.stack.running import ROOT

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
