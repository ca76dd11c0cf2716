"""Containers without an engine: their command as a plain process, with their environment and a ``/tmp`` of their own,
and nothing of this machine's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Container:
    """One container and its process."""

    folder: Path
    process: subprocess.Popen[bytes]

    def said(self) -> str:
        """Return what it wrote."""
        return (self.folder / "log").read_text(errors="replace")

    def vanish(self) -> None:
        """End it as when its machine is gone: everything at once, without a word. Engines are in sessions of their own;
        they hear that their parent died."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class Machine:
    """Where containers run."""

    folder: Path
    role: Mapping[str, str] = field(default_factory=dict)
    """Credentials that containers have by their role, whose endpoint there is none of here."""
    containers: list[Container] = field(default_factory=list)

    def run(self, command: Sequence[str], environment: Mapping[str, str], ended: Callable[[int], None]) -> Container:
        """Start a container; ``ended`` is told its exit status as an engine tells it."""
        own = self.folder / f"container-{len(self.containers)}"
        (own / "tmp").mkdir(parents=True)
        (own / "work").mkdir()
        inside = {
            name: value.replace("/tmp", str(own / "tmp"), 1) if value.startswith("/tmp") else value
            for name, value in environment.items()
        }
        image = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(own / "tmp"),
        }
        words = [sys.executable, "-m", *command] if command[0] == "prefect" else list(command)
        with (own / "log").open("wb") as log:
            process = subprocess.Popen(
                words,
                env=image | dict(self.role) | inside,
                cwd=own / "work",
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        container = Container(own, process)
        self.containers.append(container)
        threading.Thread(target=lambda: ended(exit_status(process.wait())), daemon=True).start()
        return container

    def stop(self) -> None:
        """End whatever still runs."""
        for container in self.containers:
            container.vanish()


def without_keys(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return an environment without its keys, and the keys, which a task has by its role."""
    keys = {name: value for name, value in environment.items() if "ACCESS_KEY" in name}
    return {name: value for name, value in environment.items() if name not in keys}, keys


def exit_status(returned: int) -> int:
    """Return an exit status as container engines have it: 137 for a SIGKILL."""
    return returned if returned >= 0 else 128 - returned
