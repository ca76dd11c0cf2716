"""The packer: one process that writes checkpoint folders as MLflow models, one after another.

The import of torch and MLflow takes seconds, so it happens once for all models of a run, and never in the flow's own
process. If the engines of a run are forked from a process that has imported torch, so is the packer.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from tasks.catalog import TaskSpec
from tasks.engine.environment import environment
from tasks.errors import RegistryError

PACKER_ENDING_SECONDS = 10.0  # seconds for the packer to end after its last order


class Process(Protocol):
    """A started process: a new Python, or a fork of a process that has imported torch."""

    def kill(self) -> None:
        """Kill the process at once."""

    def wait(self) -> int:
        """Wait for the end of the process; return its exit status."""


Start = Callable[[str, Path, tuple[IO[Any], IO[Any], IO[Any]], Mapping[str, str]], Process]
"""Starts ``python -m`` of a module in a folder, with the given stdin, stdout and stderr, and an environment."""


def started(
    module: str, folder: Path, handles: tuple[IO[Any], IO[Any], IO[Any]], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a new Python process, which has to import everything."""
    stdin, stdout, stderr = handles
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module], cwd=folder, stdin=stdin, stdout=stdout, stderr=stderr, env=environment
    )


class Packer:
    """Writes packages under ``workspace``; the process starts at the first order and ends with the ``with`` block.

    ``max_length`` is the longest input of the evaluation, in tokens, which each model states.
    """

    def __init__(self, workspace: Path, start: Start = started, *, max_length: int = 128) -> None:
        self.workspace, self.starting, self.max_length = workspace.absolute(), start, max_length
        self.process: Process | None = None
        self.over = False

    def __enter__(self) -> Packer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over = True
        if self.process is None:
            return
        with suppress(BrokenPipeError):  # buffered data for a process that is dead
            self.orders.close()
        end = select.poll()
        end.register(self.answers)
        if error or not end.poll(1000 * PACKER_ENDING_SECONDS):
            self.process.kill()
        self.answers.read()  # blocks until the process ends
        self.answers.close()
        if isinstance(self.process, subprocess.Popen):  # a forked process is waited for by its own parent
            self.process.wait()

    def pack(
        self, folder: Path, name: str, *, card: str, task: TaskSpec, files: Mapping[str, Path] | None = None
    ) -> Path:
        """Write a checkpoint folder as an MLflow model and return its path; ``files`` are copied into the model's
        folder, by relative path.

        A model takes and returns the values of its pipeline at Hugging Face, as the view of its task type states.
        """
        output = self.workspace / name
        about: dict[str, object] = {
            "task_type": task.kind,
            "pairs": task.pair is not None,
            "max_length": self.max_length,
        }
        order = {"folder": str(folder.absolute()), "output": str(output), "card": card, **about}
        problem = self.ask(order)
        if problem:
            raise RegistryError(f"{name} could not be written as an MLflow model: {problem}")
        for place, file in (files or {}).items():
            (output / "model" / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, output / "model" / place)
        return output

    def ask(self, order: dict[str, object]) -> str:
        """Send an order and wait for the answer; return the error message, or an empty one."""
        if self.over:  # a thread cannot be cancelled, so it may send its order after the end of the run
            return "the run was stopped"
        process = self.process = self.process or self.start()
        try:
            print(json.dumps(order), file=self.orders, flush=True)
            answer = self.answers.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return str(json.loads(answer)["problem"])
        status = process.wait()
        lines = self.errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the packer stopped with status {status}"

    def start(self) -> Process:
        """Start the process."""
        self.workspace.mkdir(parents=True, exist_ok=True)
        (reads, orders), (answers, writes) = os.pipe(), os.pipe()
        self.orders, self.answers = os.fdopen(orders, "w"), os.fdopen(answers)
        with os.fdopen(reads, "rb") as stdin, os.fdopen(writes, "wb") as stdout, self.errors.open("wb") as stderr:
            return self.starting(
                "tasks.ports.tracking.package", self.workspace, (stdin, stdout, stderr), environment(1)
            )

    @property
    def errors(self) -> Path:
        """The log of the process's stderr."""
        return self.workspace / "packer.log"
