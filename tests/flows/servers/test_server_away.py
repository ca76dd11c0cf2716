"""Servers that are dead, strange or silent: one sentence, soon, and nothing is waited for that cannot come."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.home import Home
from flows.servers import watch as server_watch
from flows.servers.local import prefect_for_a_run
from flows.servers.watch import in_a_sentence, let_go
from tasks.errors import RegistryError, ServerError
from tasks.ports.tracking.client import require_reachable
from tests.architecture.sources import ROOT
from tests.engine.test_fork_server import alive, gone
from tests.sleeping_server import own
from tests.web_server import answered_by

SOON = 20.0  # seconds


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Serve one answer to every question; yield the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with answered_by(Handler) as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """Listen and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def nobody() -> contextlib.AbstractContextManager[str]:
    """Return an address where nobody listens."""
    return contextlib.nullcontext("http://127.0.0.1:9")


# --- Prefect: one that is named ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (nobody, "attempts failed"),
        (lambda: answering(200, b"<html>"), "contains no version of Prefect"),
        (lambda: answering(401, b"{}"), r"refuses this password \(status 401\); set PREFECT_API_AUTH_STRING"),
        (lambda: answering(503, b""), "status 503"),
        (silent, "ReadTimeout"),
        (lambda: contextlib.nullcontext("http://no-such-host.invalid"), "."),
        (lambda: contextlib.nullcontext("nonsense"), "missing"),
    ],
    ids=["dead", "no Prefect", "wrong password", "out of order", "silent", "no such host", "no address"],
)
def test_a_run_does_not_begin_for_a_named_prefect_that_does_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server, said: str
) -> None:
    monkeypatch.setattr(server_watch, "ANSWER", 0.5)
    with server() as url:
        monkeypatch.setenv("PREFECT_API_URL", f"{url}/api")
        began = time.monotonic()
        with (
            temporary_settings({PREFECT_API_URL: f"{url}/api", PREFECT_API_AUTH_STRING: "someone:secret"}),
            pytest.raises(ServerError, match=said) as refused,
        ):
            with prefect_for_a_run(Home(tmp_path)):
                raise AssertionError("the run began")
    assert time.monotonic() - began < SOON and "\n" not in str(refused.value) and "secret" not in str(refused.value)


def test_what_a_dead_prefect_did_not_take_does_not_hold_up_the_exit() -> None:
    from prefect._internal.concurrency.services import _active_services
    from prefect.events import emit_event

    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        for number in range(10):
            emit_event("test.away", resource={"prefect.resource.id": f"test.{number}"})
        began = time.monotonic()
        let_go(0.2)
        # What Python calls at its exit, for every service there ever was: it has no patience of its own.
        for service in [service for service in list(_active_services) if service._started]:
            service.drain(at_exit=True)
    assert time.monotonic() - began < SOON


# --- Prefect: a run's own ---------------------------------------------------------------------------------------------


async def long() -> None:
    await asyncio.sleep(60)


def test_a_server_that_is_killed_is_started_again() -> None:
    with own(["sleep", "601"]) as server:
        first = server.process
        first.kill()
        limit = time.monotonic() + SOON
        while server.process is first and time.monotonic() < limit:
            time.sleep(0.05)
        time.sleep(0.5)
        assert server.process.args == ["sleep", "601"] and server.process.poll() is None and not server.lost


STARTS = """
import socket, sys, time
from pathlib import Path
from flows.home import Home
from flows.servers.local import start
with socket.socket() as taken:
    process, _ = start(Home(Path(sys.argv[1])), "sleeper", ["sleep", "604"], {}, taken)
    print(process.pid, flush=True)
    time.sleep(600)
"""


def test_no_server_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    words = [sys.executable, "-c", STARTS, str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        server = int(process.stdout.readline())
        assert alive(server)
        process.kill()
    gone(server)


def test_a_paused_server_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_watch, "SERVER_CHECK_SECONDS", 0.02)
    with own(["sleep", "601"]) as server:
        os.kill(server.process.pid, signal.SIGSTOP)
        limit = time.monotonic() + SOON
        while server.process.args != ["sleep", "601"] and time.monotonic() < limit:
            time.sleep(0.05)
        assert server.process.args == ["sleep", "601"]


def test_a_run_whose_server_does_not_come_up_again_ends_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)  # a process whose server is lost shows none any more
    began, retries = time.monotonic(), PREFECT_CLIENT_MAX_RETRIES.value()
    with (
        own(["false"]) as server,
        pytest.raises(ServerError, match="could not be restarted.*run the same command again") as told,
        in_a_sentence(server),
    ):
        server.process.kill()
        server_watch.run(long())
    assert time.monotonic() - began < SOON and "\n" not in str(told.value)
    assert PREFECT_CLIENT_MAX_RETRIES.value() == retries > 0, "other servers are asked with patience again"


def test_what_ended_the_run_before_its_server_was_missed_is_what_is_said() -> None:
    async def refused() -> None:
        try:
            raise RegistryError("the true reason")
        finally:
            raise RuntimeError("Failed to reach API at http://127.0.0.1:9/api")

    with pytest.raises(RegistryError, match="the true reason"), in_a_sentence(None):
        asyncio.run(refused())


# --- MLflow -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["postgresql://someone:secret@127.0.0.1:9/mlflow", "mysql+pymysql://someone:secret@127.0.0.1:9/mlflow"]
)
def test_a_dead_database_of_mlflow_is_one_sentence(address: str) -> None:
    with pytest.raises(RegistryError, match="there is no database of MLflow at .*set MLFLOW_TRACKING_URI") as refused:
        require_reachable(address)
    assert "secret" not in str(refused.value)


def test_an_mlflow_that_is_out_of_order_is_not_asked_for_minutes() -> None:
    with answering(503, b"") as url, pytest.raises(RegistryError, match=r"does not work \(status 503\)"):
        require_reachable(url)


def test_a_password_in_the_address_of_mlflow_is_no_part_of_its_host() -> None:
    with answering(200, b"OK") as url:
        require_reachable(url.replace("//", "//someone:secret@"))
