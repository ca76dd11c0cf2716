"""A real stack of a test's own: brought up by the command line, asked as its users ask it, and taken away again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.home import Home
from flows.stack import credentials, probes, supervision
from flows.stack.ceph import answers as s3_answers
from flows.stack.credentials import PERSON
from flows.stack.settings import INNER, Stack
from flows.stack.setup.worker_user import require_access
from tasks.errors import StackError
from tests.web_server import free_port

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 300.0
APART = "nobody"
"""A user that every machine has, for workers of a stack of root."""
MOVABLE = sorted(INNER.keys() - {"s3", "ceph"})
"""Ports of a stack with Ceph that nobody but the stack itself knows."""


class Running:
    """A stack in a home that other users can walk into, as servers that root may not run must."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="limbeck-stack-", dir="/tmp"))
        self.root.chmod(0o755)
        self.home = Home(self.root / "home")

    @property
    def stack(self) -> Stack:
        return Stack.of(self.home)

    @property
    def secret(self) -> dict[str, str]:
        return credentials.load(self.stack.secrets_file)

    def limbeck(self, *words: str, cwd: Path | None = None, **told: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a user of this home would."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PREFECT_", "MLFLOW_", "LIMBECK_", "AWS_"))
        }
        environment = {
            **kept,
            "LIMBECK_HOME": str(self.home.root),
            "PYTHONPATH": str(ROOT),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            **told,
        }
        return subprocess.run(
            [sys.executable, "-P", "-m", "flows.cli", *words],
            cwd=cwd or self.root,
            env=environment,
            capture_output=True,
            text=True,
        )

    def up(self, *words: str) -> str:
        done = self.limbeck("up", *(() if self.home.root.exists() else first_words()), *words)
        assert done.returncode == 0, done.stdout + done.stderr + self.last_words(done.stderr)
        return done.stdout

    def last_words(self, said: str) -> str:
        """Return the end of the log that a message names: the stack of a test that failed is gone when somebody reads
        of it."""
        _, found, path = said.strip().partition("its log is ")
        return "".join(Path(path).read_text().splitlines(keepends=True)[-40:]) if found else ""

    def pid(self, name: str) -> int:
        return supervision.process_id(self.stack, name)

    def kill(self, name: str) -> int:
        """Kill a process without a word; return who it was."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def client(self) -> dict[str, str]:
        """What `limbeck env` tells other programs."""
        said = self.limbeck("env").stdout
        lines = subprocess.run(
            ["sh", "-c", said + "\nenv -0"], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
        ).stdout
        return dict(line.split("=", 1) for line in lines.split("\0") if "=" in line)

    def prefect(self, *words: str) -> str:
        """Run a command of Prefect's own as a user of this stack would; return what it said."""
        environment = {**self.client(), "PREFECT_HOME": str(self.root / "prefect"), "COLUMNS": "300"}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "prefect", *words],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def log(self, name: str) -> str:
        """Return what a process of the stack, and what it started, wrote."""
        return (self.stack.logs / f"{name}.log").read_text(errors="replace")

    def ask(self, path: str, body: Any = None) -> Any:
        """Ask Prefect; one that is away for a moment is asked again, as its own client would."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return probes.ask(
                    f"{self.stack.prefect_url}/api/{path}",
                    PERSON,
                    self.secret["LIMBECK_PREFECT_PASSWORD"],
                    body,
                    self.stack.authorities,
                )
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def deploy_steps(self) -> None:
        """Deploy the flow of steps to the pool of the stack's own worker."""
        flow = self.ask("flows/", {"name": "steps"})["id"]
        pull = [{"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}]
        entrypoint = f"{Path(__file__).with_name('flow_for_faults.py').relative_to(ROOT)}:steps"
        wanted = {
            "name": "faults",
            "flow_id": flow,
            "entrypoint": entrypoint,
            "work_pool_name": "cpu",
            "pull_steps": pull,
            "enforce_parameter_schema": False,
        }
        self.ask("deployments/", wanted)

    def resubmit_what_crashed(self) -> None:
        """Make an automation such as `limbeck deploy` makes, by Prefect's API alone, and give the services the moment
        that they need to hear of it."""
        trigger = {
            "type": "event",
            "posture": "Reactive",
            "expect": ["prefect.flow-run.Crashed"],
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            "within": 0,
        }
        action = {"type": "change-flow-run-state", "state": "SCHEDULED", "name": "AwaitingRetry"}
        self.ask(
            "automations/", {"name": "run again what crashed", "enabled": True, "trigger": trigger, "actions": [action]}
        )
        time.sleep(5)

    def start_steps(self, count: int, seconds: float) -> tuple[str, Path]:
        """Start a run of the steps and wait until the first is taken; return the run and where it writes them down."""
        witness = self.root / f"witness-{time.monotonic_ns()}"
        deployment = self.ask("deployments/name/steps/faults")["id"]
        run = self.ask(
            f"deployments/{deployment}/create_flow_run",
            {"parameters": {"count": count, "seconds": seconds, "witness": str(witness)}},
        )["id"]
        eventually(witness.exists, f"run {run} did not begin: {self.state(run)}")
        return run, witness

    def state(self, run: str) -> str:
        return str(self.ask(f"flow_runs/{run}")["state_type"])

    def finished(self, run: str) -> str:
        """Wait for the end of a run; return its state."""
        eventually(lambda: self.state(run) in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"), f"run {run} did not end")
        return self.state(run)

    def answers(self, name: str) -> bool:
        """Ask a server itself, past whoever stands before it."""
        stack, secret = self.stack, self.secret
        asked: dict[str, Callable[[], bool]] = {
            "postgres": lambda: probes.postgres_ready(stack, secret),
            "redis": lambda: probes.redis_ready(stack, secret),
            "api-1": lambda: probes.prefect_ready(f"http://127.0.0.1:{stack.settings.ports['api-1']}"),
            "mlflow": lambda: probes.mlflow_ready(stack, secret),
            "radosgw": lambda: s3_answers("127.0.0.1", stack.settings.ports["s3"]),
        }
        return asked.get(name, lambda: True)()

    def recovered(self, name: str, killed: int) -> bool:
        """Tell whether another process does the work of one that was killed: that there is another is asked first, for
        the supervisor needs a moment."""
        return self.pid(name) not in (0, killed) and self.healthy() and self.answers(name)

    def healthy(self) -> bool:
        return set(supervision.states(self.stack).values()) == {"RUNNING"} and probes.prefect_ready(
            self.stack.prefect_url, self.stack.authorities
        )

    def remove(self) -> None:
        if not self.stack.is_new:
            self.limbeck("down")
            shutil.rmtree(
                self.stack.data, ignore_errors=True
            )  # elsewhere, where the home is closed to the servers' users
        shutil.rmtree(self.root, ignore_errors=True)


def first_words() -> tuple[str, ...]:
    """Return the options of a new stack beside others."""
    return ("--prefect-port", str(free_port()), "--mlflow-port", str(free_port()), *worker_user())


def worker_user() -> tuple[str, ...]:
    """Return the option for workers that do not run as root, or root where no other user can run this Python."""
    if os.geteuid() != 0:
        return ()
    try:
        require_access(pwd.getpwnam(APART))
    except StackError:
        return ("--worker-user", "root")
    return ("--worker-user", APART)


@contextmanager
def taken_by_a_program(port: int = 0) -> Iterator[int]:
    """Listen on a port of the loopback address, or on any free one; yield it."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield taken.getsockname()[1]


def eventually(true: Callable[[], bool], otherwise: str, patience: float = PATIENCE) -> float:
    """Wait until something holds; return how long that took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < patience, otherwise
        time.sleep(0.2)
    return time.monotonic() - began
