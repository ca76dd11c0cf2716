"""Engines and packers of tests, forked from the warm process (``warm.py``): started anew, each would take four to six
seconds of processor time for its imports. Tests about the start of a process, or about what it imports, start one.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tasks.engine.environment import environment
from tasks.engine.fork_server import ORDER
from tests.forked.interpreter import ROOT, interpreter


def start_fork(
    module: str, folder: Path, handles: tuple[IO[Any], IO[Any], IO[Any]], known: Mapping[str, str], *words: str
) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` in a folder with an environment, as ``started`` of the packer does."""
    stdin, stdout, stderr = handles
    paths = os.pathsep.join([path for path in (known.get("PYTHONPATH"), str(ROOT)) if path])
    command, own = [interpreter(), "-P", "-m", module, *words], {**known, "PYTHONPATH": paths}
    return subprocess.Popen(command, cwd=folder, stdin=stdin, stdout=stdout, stderr=stderr, env=own)


class ForkedJob:
    """An engine that does the job in a folder, as a fork; ``more`` are further variables of its environment."""

    def __init__(self, order: Mapping[str, Any], folder: Path, module: str = "tasks.training", **more: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.absolute() / ORDER
        place.write_text(json.dumps(order))
        reader, writer = os.pipe()
        self.stdout, self.log = os.fdopen(reader), folder / "stderr.log"
        with open(os.devnull, "rb") as nothing, os.fdopen(writer, "wb") as answers, self.log.open("wb") as errors:
            self.fork = start_fork(module, folder, (nothing, answers, errors), environment(1) | more, str(place))

    def send_signal(self, signal_number: int) -> None:
        """Send a signal to the engine."""
        self.fork.send_signal(signal_number)

    @property
    def errors(self) -> str:
        """What the engine wrote to stderr."""
        return self.log.read_text(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """Read what the engine has yet to say, until it ends."""
        with self.stdout:
            said = [json.loads(line) for line in self.stdout if line.startswith("{")]
        self.fork.wait()
        return said


OFTEN = 1e-4
"""Minutes between checkpoints, so that an engine leaves some within a test."""


def wait_for_checkpoint(folder: Path) -> None:
    """Wait until an engine that works in a folder has left a checkpoint there."""
    deadline = time.monotonic() + 120
    while not any((folder / "checkpoints").rglob("step-*")):
        assert time.monotonic() < deadline, "no checkpoint within two minutes"
        time.sleep(0.01)
