"""A ``python`` whose processes are forks of one that has imported Prefect, MLflow, torch and our code: a command or an
engine that is started anew takes four to seven seconds of processor time for them.

Program, words, variables, folder, files, signals and status are those that a new process would have; the rules are in
``shim.py``. Tests about the start of a process, what it imports, or its death by a kill start a real one. Servers are
real, too: they set variables before they import Prefect, which reads them then.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tasks.engine.environment import NUMERIC, PRACTICAL, SEEN
from tasks.engine.sources import digest
from tests.databases import folder_of_session

ROOT = Path(__file__).resolve().parents[2]
REAL = sys.executable
OWNER = "LIMBECK_TESTS_OWNER"
"""Names the process that began the tests, which imports this first; the warm process ends with it."""
os.environ.setdefault(OWNER, str(os.getpid()))
QUIET = {"OMP_NUM_THREADS": "1", "HF_EVALUATE_OFFLINE": "1", "DO_NOT_TRACK": "1"}
"""What the warm process has besides an engine's own variables."""
PACKAGES = ("flows", "tasks", "tests")
"""What ``python -m`` may be asked for that a fork does; all else is done by a real Python."""


@cache
def interpreter() -> str:
    """Return the path of that ``python``; the first process of a session that asks starts the warm one.

    It hears of the end of the tests by a handle on a process, which Linux has.
    """
    if sys.platform != "linux":
        return REAL
    place = folder_of_session() / "interpreter"
    place.mkdir(exist_ok=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "warm.json").exists():
            make(place)
    return str(place / "python")


@contextmanager
def forked_processes() -> Iterator[None]:
    """Let the Python processes that the product starts within the block be forks."""
    before, sys.executable = sys.executable, interpreter()
    try:
        yield
    finally:
        sys.executable = before


def make(place: Path) -> None:
    """Write the program, and start the warm process."""
    shim = Path(__file__).with_name("shim.py").read_text()
    (place / "python").write_text(f"#!{REAL} -IS\n{shim}")
    (place / "python").chmod(0o755)
    given = {name: os.environ[name] for name in SEEN if name in os.environ} | NUMERIC | PRACTICAL | QUIET
    given |= {"PREFECT_HOME": str(place / "prefect"), "PYTHONPATH": str(ROOT)}
    words = [str(place / "socket"), str(place / "python"), os.environ[OWNER]]
    command = [REAL, "-P", str(Path(__file__).with_name("warm.py")), *words]
    with (place / "log").open("wb") as log:
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": log}
        process = subprocess.Popen(command, env=given, cwd=place, start_new_session=True, **quiet)
    assert process.stdout is not None
    assert process.stdout.readline(), f"the warm process did not start: {(place / 'log').read_text()}"
    told = {
        "socket": str(place / "socket"),
        "python": REAL,
        "packages": PACKAGES,
        "paths": [str(ROOT)],
        "sources": digest(),
        "environment": given,
    }
    (place / "warm.json").write_text(json.dumps(told))
