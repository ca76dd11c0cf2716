"""A run that a person stops: one sentence, nothing left running, and the next run goes on from the checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import databases
from tests.command_line import Command

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 700.0  # a hang ends the test; a slow machine does not
ENDED = {
    "press_ctrl_c": {"CRASHED", "CANCELLED"},
    "send_sigterm": {"CRASHED", "CANCELLED"},
    "press_cancel": {"CANCELLED"},
}
"""How Prefect may call the end of a run."""


def start(recipe: Path, home: Path) -> subprocess.Popen[str]:
    """Start a run as a terminal does."""
    return limbeck(home, "run", str(recipe))


def limbeck(home: Path, *words: str, working: Path | None = None) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, which Ctrl-C reaches as a whole; in a working folder, as the
    installed program."""
    program = [sys.executable, "-m", "flows.cli"] if working is None else [Path(sys.executable).with_name("limbeck")]
    databases.prepare(home)
    named = ("LIMBECK_", "PREFECT_", "MLFLOW_")
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(named)}
    return subprocess.Popen(
        [*program, *words],
        cwd=working or ROOT,
        env=quiet | {"LIMBECK_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )


def hear_ctrl_c() -> None:
    """Listen to SIGINT as under a terminal: a shell that runs the tests in its background has it ignored, and children
    inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def asked(database: Path, query: str) -> list[Any]:
    with sqlite3.connect(database) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture
def recipe(tmp_path: Path, tiny_bert: Path, tiny_rows: Path) -> Path:
    """A teacher that takes long enough to be stopped in the middle."""
    fast = {"batch_size": 16, "learning_rate": 5e-3, "max_length": 32, "evaluations": 1}
    values = {
        "name": "stopped",
        "task": {"name": "opinions", "labels": ["negative", "positive"]},
        "data": {"source": str(tiny_rows), "selection_rows": 20},
        "teacher": {"model": str(tiny_bert), "steps": 600, "floor": 0.0, **fast},
        "task_distillation": {"prediction": {"steps": 5, **fast}},
        "students": [{"name": "small", "layers": 2}],
        "resources": {"threads_alone": 1},
        "scoring": {"max_length": 32, "resamples": 100},
        "gate": {"split": "validation"},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
    }
    path = tmp_path / "stopped.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def press_ctrl_c(run: subprocess.Popen[str], read: str) -> None:
    """Do what a terminal does: it tells the whole group."""
    os.killpg(run.pid, signal.SIGINT)


def send_sigterm(run: subprocess.Popen[str], read: str) -> None:
    """Do what an init system does."""
    run.send_signal(signal.SIGTERM)


def press_cancel(run: subprocess.Popen[str], read: str) -> None:
    """Do what a browser does in which the run's link is opened, and the Cancel button of the Prefect UI pressed."""
    found = re.search(r"watch the run at (http://[^/]+)(/limbeck/login)[?]to=/runs/flow-run/([\w-]+)#(\S+)", read)
    assert found, read
    with urllib.request.urlopen(found[1] + found[2], found[4].encode(), timeout=10) as answer:
        password = json.load(answer)["stored"]["prefect-password"]
    body = json.dumps({"state": {"type": "CANCELLING", "name": "Cancelling"}}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Basic {password}"}
    url = f"{found[1]}/api/flow_runs/{found[3]}/set_state"
    urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10).close()


@pytest.mark.slow
@pytest.mark.parametrize("stop", [press_ctrl_c, send_sigterm])
def test_a_stopped_run_leaves_nothing_running_and_loses_nothing(
    tmp_path: Path, recipe: Path, stop: Callable[[subprocess.Popen[str], str], None]
) -> None:
    home = tmp_path / "home"
    first = start(recipe, home)
    stop(first, wait_for_training(first))
    require_an_orderly_end(first, home, stop.__name__)
    second = start(recipe, home)
    read = wait_for_training(second)
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, err
    assert "finetune-teacher: resuming at step" in read + out


def test_a_run_that_is_cancelled_ends_in_order_and_another_process_goes_on(
    tmp_path: Path,
    recipe: Path,
    prefect_url: str,
    engines_here: None,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cancelled run is a process with servers and engines of its own; this process resumes it, with another
    server."""
    home = tmp_path / "home"
    first = start(recipe, home)
    read = wait_for_training(first)
    with engines_held(first) as stopped:
        press_cancel(first, read)
        wait_for_sigterm(stopped)
    require_an_orderly_end(first, home, "press_cancel")
    logged = [said for (said,) in asked(home / "prefect.db", "select message from log")]
    assert not [said for said in logged if "Crash" in said], "what a person stopped is no crash"
    assert "Stopped: its run was cancelled" in logged

    monkeypatch.setenv("LIMBECK_HOME", str(home))
    monkeypatch.setenv("PREFECT_API_URL", prefect_url)
    resumed = command("resume")
    assert resumed.status == 0, resumed.error
    assert "finetune-teacher: resuming at step" in resumed.output and "1 of" in resumed.output
    assert not leftovers(home)
    explained = command("explain")
    assert "stopped: FINISHED" in explained.output and "computed by run" in explained.output, explained.error
    assert "never computed" in explained.output


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_nothing_running_and_loses_nothing(tmp_path: Path, recipe: Path) -> None:
    home = tmp_path / "home"
    killed = start(recipe, home)
    wait_for_training(killed)
    killed.kill()
    killed.communicate()
    time.sleep(3)  # engine and server see that their parent is gone
    require_that_the_janitor_ends_what_was_left_open(home, folder_of_traps(tmp_path))
    assert not (tmp_path / "canary").exists(), "a file of the working folder was imported"
    require_that_it_goes_on(home, leftovers(home))  # of the killed processes, until `limbeck gc` finds it old


def require_that_it_goes_on(home: Path, left: set[Path]) -> None:
    """Resume a stopped run, and kill its Prefect server alone: the run used to wait for it for minutes. It goes on, and
    nothing is left open."""
    resumed = limbeck(home, "resume")
    read = wait_for_training(resumed)
    os.kill(prefect_server_of(resumed), signal.SIGKILL)
    out, err = resumed.communicate(timeout=PATIENCE)
    assert resumed.returncode == 0, err
    assert "finetune-teacher: resuming at step" in read + out and "1 of" in out
    assert set(asked(home / "prefect.db", "select state_type from flow_run order by created desc limit 1")) == {
        ("COMPLETED",)
    }
    assert leftovers(home) <= left, "the run that went on has left something"


def require_an_orderly_end(stopped: subprocess.Popen[str], home: Path, way: str) -> None:
    """Wait for the end of a run that was stopped: one sentence, nothing left open, nothing half-written."""
    _, err = stopped.communicate(timeout=PATIENCE)
    assert stopped.returncode == 130
    assert err.strip() == "limbeck: stopped; run the same command again to continue from there", err
    assert {status for (status,) in asked(home / "mlflow.db", "select status from runs")} == {"KILLED", "FINISHED"}
    assert {state for (state,) in asked(home / "prefect.db", "select state_type from flow_run")} <= ENDED[way]
    assert not leftovers(home)


def leftovers(home: Path) -> set[Path]:
    """Return the folders of unfinished work and the logs of servers."""
    return {*(home / "store" / "temporary").iterdir(), *(home / "logs").iterdir()}


def folder_of_traps(folder: Path) -> Path:
    """Make a folder of files that are named like libraries, and that tell when one is imported: people start commands
    in folders that they have unpacked."""
    here = folder / "unpacked"
    here.mkdir()
    told = f"from pathlib import Path\nPath({str(folder / 'canary')!r}).write_text('code ran')\n"
    for name in ("prefect", "mlflow", "torch", "tasks"):
        (here / f"{name}.py").write_text(told)
    return here


def require_that_the_janitor_ends_what_was_left_open(home: Path, working: Path) -> None:
    """After kill -9 the tables say that the run goes on, until the janitor has come."""
    assert "RUNNING" in {status for (status,) in asked(home / "mlflow.db", "select status from runs")}
    janitor = limbeck(home, "janitor", working=working)
    out, err = janitor.communicate(timeout=PATIENCE)
    assert janitor.returncode == 0, err
    assert "1 runs ended" in out and "its process no longer exists" in out
    assert {status for (status,) in asked(home / "mlflow.db", "select status from runs")} == {"KILLED", "FINISHED"}
    newest = "select state_type from flow_run where name = 'stopped' order by created desc limit 1"
    assert asked(home / "prefect.db", newest) == [("CRASHED",)]
    states = {state for (state,) in asked(home / "prefect.db", "select state_type from task_run")}
    assert "CRASHED" in states and not states & {"RUNNING", "PENDING", "SCHEDULED"}


@contextlib.contextmanager
def engines_held(run: subprocess.Popen[str]) -> Iterator[list[int]]:
    """Let the engines of a run stand still meanwhile: it asks Prefect every few seconds whether it was cancelled, and a
    fast machine has trained the teacher by then. Give their processes."""
    servers = [pid for pid in children_of(run.pid) if b"fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    engines = [pid for server in servers for pid in children_of(server)]
    assert engines, "no engine runs"
    for pid in engines:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield engines
    finally:
        for pid in engines:
            os.kill(pid, signal.SIGCONT)


def wait_for_sigterm(engines: list[int]) -> None:
    """Return when the run has told one of the processes, which stand still, to stop."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        for pid in engines:
            pending = re.search(r"ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
            if pending and int(pending[1], 16) >> (signal.SIGTERM - 1) & 1:
                return
        time.sleep(0.1)
    raise AssertionError("the run has not told its engines to stop")


def children_of(pid: int) -> list[int]:
    found = (children.read_text().split() for children in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for children in found for child in children]


def prefect_server_of(run: subprocess.Popen[str]) -> int:
    """Return the process of the Prefect server that a run has started."""
    for pid in children_of(run.pid):
        if b"prefect" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError("the run has no Prefect server of its own")


def wait_for_training(run: subprocess.Popen[str]) -> str:
    """Read on until the teacher learns; return what was read."""
    assert run.stdout is not None
    limit, read = time.monotonic() + PATIENCE, ""
    while time.monotonic() < limit:
        line = run.stdout.readline()
        assert line, run.stderr.read() if run.stderr else ""
        read += line
        if "finetune-teacher" in line and "steps" in line:
            return read
    raise AssertionError("the teacher did not start to learn")
