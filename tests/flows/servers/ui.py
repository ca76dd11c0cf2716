"""``limbeck ui`` and other commands of a home, as a person starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from flows.home import Home
from tests.prefect_server import ROOT
from tests.web_server import free_port


def surroundings(home: Home) -> dict[str, str]:
    """Return the environment of a person who names no servers."""
    foreign = ("PREFECT_", "MLFLOW_", "LIMBECK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own = {"LIMBECK_HOME": str(home.root), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return kept | own


def limbeck(home: Home, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-P", "-m", "flows.cli", *words]
    return subprocess.run(command, env=surroundings(home), capture_output=True, text=True)


@contextmanager
def limbeck_ui(home: Home, end: signal.Signals = signal.SIGINT) -> Iterator[str]:
    """Run the servers of a home; yield what the command says when they are up, and end it by a signal."""
    words = ["ui", "--prefect-port", str(free_port()), "--mlflow-port", str(free_port())]
    command = [sys.executable, "-P", "-m", "flows.cli", *words]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    with subprocess.Popen(command, env=surroundings(home), **how) as process:  # type: ignore[call-overload]
        said = ""
        while "Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        try:
            yield said
        finally:
            process.send_signal(end)
            process.wait(60)
