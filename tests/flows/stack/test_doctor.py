"""The doctor names what is missing and what mends it, and says by its exit status whether the stack could work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flows.home import Home
from flows.stack import doctor, programs
from flows.stack.checks.finding import BAD, OK, WARNING
from flows.stack.doctor import examine, gpu_stages_elsewhere
from flows.stack.settings import Settings, Stack

ROOT = Path(__file__).resolve().parents[3]


def states(home: Path) -> dict[str, str]:
    return {finding.subject: finding.state for finding in examine(Home(home))}


def test_a_machine_without_postgresql_is_not_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = programs.find

    def find(program: str) -> str | None:
        return None if program in ("initdb", "nginx") else there(program) or f"/usr/bin/{program}"

    monkeypatch.setattr(programs, "find", find)
    monkeypatch.setattr(doctor, "version_of", lambda software: "1.0")
    found = {finding.subject: finding for finding in examine(Home(tmp_path))}
    assert (
        found["PostgreSQL"].state == BAD
        and "initdb missing" in found["PostgreSQL"].details
        and "apt-get install" in found["PostgreSQL"].remedy
    )
    assert found["nginx"].state == WARNING and "one API server" in found["nginx"].details
    assert found["Redis"].state == OK


def test_the_exit_status_tells(tmp_path: Path) -> None:
    """Nothing is found on a machine where the path is empty and the usual places are not looked at."""
    code = (
        "import sys; from flows.stack import programs; programs.OFF_THE_PATH = (); sys.argv = ['limbeck', "
        "'doctor']; from flows.cli.app import main; main()"
    )
    told = {
        **os.environ,
        "PATH": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "LIMBECK_HOME": str(tmp_path / "home"),
        "COLUMNS": "200",
    }
    done = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "apt-get install --no-install-recommends postgresql" in done.stdout, done.stderr
    assert not (tmp_path / "home").exists(), "who looks changes nothing"


def test_drifted_versions_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "stack.txt"
    lock.write_text(
        "prefect==3.0.0 \\\n    --hash=sha256:0\nnot-here-at-all==1.0 ; sys_platform == 'linux' \\\n    "
        "--hash=sha256:0\n"
    )
    monkeypatch.setattr(doctor, "LOCK", lock)
    found = {finding.subject: finding for finding in doctor.packages(Stack(tmp_path))}
    assert found["locked versions"].state == WARNING and "prefect 3.9.1, not 3.0.0" in found["locked versions"].details
    assert "not-here" not in found["locked versions"].details


def test_taken_ports_are_named(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        stack = Stack(tmp_path / "stack", Settings(ports=dict.fromkeys(Settings().ports, 1) | {"mlflow": port}))
        (tmp_path / "stack").mkdir()
        stack.save()
        [found] = [finding for finding in doctor.ports(stack) if finding.subject == "ports"]
    assert found.state == BAD and f"mlflow {port}" in found.details


def test_a_check_that_breaks_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda name: 1 / 0)
    assert states(tmp_path)["packages"] == BAD


class Page(BaseHTTPRequestHandler):
    """A server of pages that are no JSON."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<!doctype html>")

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_an_address_that_is_no_api_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """It was an error of a JSON parser, or of a library of addresses, and no remedy."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PREFECT_API_URL", f"{scheme}127.0.0.1:{server.server_port}")
        (found,) = gpu_stages_elsewhere(Stack.of(Home(tmp_path)))
        server.shutdown()
    assert found.state == BAD and "it begins with http and ends in /api" in found.remedy
    assert f"PREFECT_API_URL, {scheme}127.0.0.1" in found.details
