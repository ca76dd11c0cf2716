"""Two machines, as two networks with one wire between them: the servers on one, a GPU worker with a token of its own on
the other, and the wire cut while it trains.

Slow: minutes. The networks are Linux's namespaces; both machines have one disk, which they do not use together: the
worker has a home of its own, and everything else comes to it over TLS.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from flows.servers.worker_tokens import NO_ADMINISTRATION
from flows.stack import probes
from flows.stack.people.machines import read_worker_file
from tests.flows.stack.running import ROOT, Running, eventually
from tests.flows.stack.test_live import pytestmark as slow
from tests.flows.stack.test_whole import LONG, ended, made, readable, recipe, start
from tests.infra.namespace import Namespace, namespace, why_not

WHY_NOT = why_not()
pytestmark = [*slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
CUT_SECONDS = 45.0
"""Longer than a heartbeat, shorter than the silence after which a run is ended."""


class OtherMachine:
    """The second machine: its network, its home, and the worker that a person starts there."""

    def __init__(self, inside: Namespace, running: Running) -> None:
        self.inside, self.file, self.log = inside, running.root / "gpu-box.json", running.root / "worker.log"
        done = running.limbeck("workers", "add", "gpu-box", str(self.file))
        assert done.returncode == 0, done.stdout + done.stderr
        told = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "A_SECRET": "of a person"}
        # namespaces are root's to make, and this Python may be one that root alone can run
        words = [sys.executable, "-P", "-m", "flows.cli", "worker", str(self.file), "--as-root"]
        self.process = subprocess.Popen(
            inside.command(*words),
            env=told | {"LIMBECK_HOME": str(running.root / "other")},
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
        )

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wire(self, state: str) -> None:
        """Cut the wire between both machines (down), or mend it (up)."""
        subprocess.run(["ip", "link", "set", self.inside.wire, state], check=True)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:  # its stage was in the middle of something
            self.process.kill()


@pytest.fixture(scope="module")
def inside() -> Iterator[Namespace]:
    with namespace() as made_here:
        yield made_here


@pytest.fixture(scope="module")
def running(inside: Namespace) -> Iterator[Running]:
    stack = Running()
    try:
        stack.up("--host", inside.host, "--local-authority", "--pools", "cpu")
        done = stack.limbeck("deploy", "--gpus", "1")
        assert done.returncode == 0, done.stdout + done.stderr
        yield stack
    finally:
        stack.remove()


@pytest.fixture(scope="module")
def other(inside: Namespace, running: Running) -> Iterator[OtherMachine]:
    machine = OtherMachine(inside, running)
    try:
        eventually(
            lambda: probes.workers_online(running.stack, running.secret, "gpu-local") == ["gpu-box-gpu-local"],
            machine.said,
        )
        yield machine
    finally:
        machine.stop()


def test_a_worker_on_another_machine_trains_through_a_cut(
    running: Running,
    other: OtherMachine,
    prefect_server: None,
    tiny_bert: Path,
    tiny_rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And makes the bytes that a run on one machine makes."""
    bert = readable(tiny_bert, running.root / "bert")
    rows = readable(tiny_rows.parent, running.root / "rows") / tiny_rows.name
    wanted = recipe(bert, rows, "two-machines", seed=7, **LONG)
    run = start(running, wanted)
    eventually(
        lambda: "steps, loss" in other.said or running.state(run) == "FAILED",
        f"it does not train: {other.said[-2000:]}",
        900,
    )
    assert "steps, loss" in other.said, running.log("worker-cpu")[-3000:]
    [training] = [
        one
        for one in running.ask("flow_runs/filter", {"work_pools": {"name": {"any_": ["gpu-local"]}}})
        if one["state_type"] == "RUNNING"
    ]
    pid = training["infrastructure_pid"].rpartition(":")[2]
    where = subprocess.run(["ip", "netns", "identify", pid], capture_output=True, text=True).stdout
    assert where.strip() == other.inside.name, "the stage runs on the other machine"
    other.wire("down")
    assert probes.prefect_ready(running.stack.prefect_url, running.stack.authorities)
    began, before = time.monotonic(), other.said.count("steps, loss")
    time.sleep(CUT_SECONDS)
    other.wire("up")
    assert "COMPLETED" in ended(running, run), running.log("worker-cpu")[-3000:] + other.said[-3000:]
    print(f"FIGURE cut for {CUT_SECONDS:.0f} s: the run completed {time.monotonic() - began:.0f} s after the cut")
    assert before > 0 and "steps, loss" not in running.log("worker-cpu"), "nothing was trained on the first machine"
    ours = made(running, monkeypatch)
    undisturbed = run_recipe(wanted, home=Home(tmp_path / "embedded").create())
    for row in undisturbed["manifest"]["stages"]:
        assert row["measured"] or ours[row["key"]] == row["sha256"], row


def test_its_token_is_its_own_and_can_be_taken_away(running: Running, other: OtherMachine) -> None:
    stack, held = running.stack, read_worker_file(other.file)
    name, _, token = held["PREFECT_API_AUTH_STRING"].partition(":")
    url, trust = f"{stack.prefect_url}/api", stack.authorities
    assert not any(value in other.file.read_text() for value in (running.secret["LIMBECK_PREFECT_PASSWORD"],))
    assert probes.ask(f"{url}/flows/filter", name, token, {}, trust)
    for path in ("work_pools/", "deployments/", "automations/", "block_documents/", "variables/"):
        refused = probes.request_for(f"{url}/{path}", name, token, {"name": "mine", "type": "process"})
        with pytest.raises(OSError, match="403") as caught:
            probes.send(refused, trust)
        assert NO_ADMINISTRATION in caught.value.read().decode()  # type: ignore[attr-defined]
    mlflow = f"{stack.mlflow_url}/api/2.0/mlflow/users/current"
    account = held["MLFLOW_TRACKING_USERNAME"], held["MLFLOW_TRACKING_PASSWORD"]
    assert probes.status_of(mlflow, *account, trust) == 200
    assert running.limbeck("workers", "remove", "gpu-box").returncode == 0
    assert probes.status_of(f"{url}/admin/version", name, token, trust) == 401
    assert probes.status_of(mlflow, *account, trust) == 401
