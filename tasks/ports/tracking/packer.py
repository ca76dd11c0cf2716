"""A packer: one process that writes checkpoint folders as MLflow models, one after another.

Loading torch and MLflow costs seconds, so it happens once for all models of a run, and never in the flow's own process.
Where a run has engines that are forked from a process with torch in it, the packer is forked from there too.
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

from tasks.engine.environment import environment
from tasks.errors import RegistryError

PACKER_ENDING_SECONDS = 10.0  # seconds a packer gets to end once nothing more is to be packed


class Process(Protocol):
    """A process that was started, by ourselves or by whoever has torch loaded already."""

    def kill(self) -> None:
        """End it at once."""

    def wait(self) -> int:
        """Wait for its end; return how it ended."""


Start = Callable[[str, Path, tuple[IO[Any], IO[Any], IO[Any]], Mapping[str, str]], Process]
"""Starts ``python -m`` of a module: in a folder, between what it reads, what it answers and what it complains to, in an
environment."""


def started(
    module: str, folder: Path, handles: tuple[IO[Any], IO[Any], IO[Any]], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a Python that loads everything by itself."""
    stdin, stdout, stderr = handles
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module], cwd=folder, stdin=stdin, stdout=stdout, stderr=stderr, env=environment
    )


class Packer:
    """Writes packages under ``workspace``; its process starts with the first order, and ends with the ``with``
    block."""

    def __init__(self, workspace: Path, start: Start = started) -> None:
        self.workspace, self.starting = workspace.absolute(), start
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
        with suppress(BrokenPipeError):  # an order that a dead process never took
            self.orders.close()
        end = select.poll()
        end.register(self.answers)
        if error or not end.poll(1000 * PACKER_ENDING_SECONDS):
            self.process.kill()
        self.answers.read()  # to its end, which is the process's
        self.answers.close()
        if isinstance(self.process, subprocess.Popen):  # another's process is waited for by that other
            self.process.wait()

    def pack(self, folder: Path, name: str, *, card: str, pairs: bool, files: Mapping[str, Path] | None = None) -> Path:
        """Write a checkpoint folder as an MLflow model and return where it is; ``files`` go into the model's folder, by
        their place in it.

        A model takes strings, or with ``pairs`` ``{"text": …, "text_pair": …}``. A regression answers with its bare
        logit as ``score``, because the checkpoint's config says ``problem_type: regression``.
        """
        output = self.workspace / name
        order = {"folder": str(folder.absolute()), "output": str(output), "card": card, "pairs": pairs}
        problem = self.ask(order)
        if problem:
            raise RegistryError(f"{name} could not be written as an MLflow model: {problem}")
        for place, file in (files or {}).items():
            (output / "model" / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, output / "model" / place)
        return output

    def ask(self, order: dict[str, object]) -> str:
        """Hand an order over and wait; return what went wrong, or nothing."""
        if self.over:  # a thread cannot be cancelled: it may come to its order when the run has ended
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
        """What the process complains about."""
        return self.workspace / "packer.log"
