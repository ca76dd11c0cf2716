"""A fork is what a new process would be: words, output, status, signals, and its end with who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import SHARED
from tests.forked.interpreter import ROOT, interpreter


def test_a_command_says_and_ends_as_a_new_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    words = ["-P", "-m", "flows.cli", "plan", "nowhere.yaml"]
    folder = tmp_path_factory.mktemp("empty")
    new, fork = (
        subprocess.run([program, *words], cwd=folder, capture_output=True, text=True)
        for program in (sys.executable, interpreter())
    )
    assert new.returncode == 1 and "nowhere.yaml" in new.stderr
    assert (fork.returncode, fork.stdout, fork.stderr) == (new.returncode, new.stdout, new.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_fork_and_is_its_status(number: signal.Signals) -> None:
    words = [interpreter(), "-P", "-m", "tests.contenders"]
    known = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env=known, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "", "the fork still holds its output"
        assert process.wait() == -number


def test_what_only_a_new_python_does_is_done_by_one() -> None:
    words = [interpreter(), "-c", "import sys; print(sys.executable, 'torch' in sys.modules)"]
    assert subprocess.run(words, capture_output=True, text=True).stdout == f"{sys.executable} False\n"


ALONE = """
import os, sys
from tests.databases import folder_of_session
folder = folder_of_session()
if not os.fork():
    sys.exit()
os.wait()
print(folder, folder.is_dir() and folder_of_session() == folder)
"""


def test_a_suite_without_pytest_makes_the_folder_of_its_processes_and_removes_it() -> None:
    known = {name: value for name, value in os.environ.items() if name != SHARED}
    words = [sys.executable, "-c", ALONE]
    done = subprocess.run(words, cwd=ROOT, env=known, capture_output=True, text=True, check=True)
    folder, there = done.stdout.split()
    assert there == "True" and not Path(folder).exists() and folder != os.environ[SHARED]
