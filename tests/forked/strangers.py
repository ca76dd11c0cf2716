"""Processes that have none of our code: forked from one that has imported torch, transformers and MLflow alone
(``stranger.py``), since each would take five to eight seconds of processor time for them.

``flows/test_round_trip.py`` starts a process of its own, with no more than what it imports itself.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.databases import folder_of_session, locked
from tests.forked.interpreter import OWNER

NOTHING_ELSE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "tasks", "flows"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Absent())
"""
"""Lines before a program that is run by ``python -I -c``: what it must not need cannot be imported there."""


def ask_stranger(code: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a folder, as ``python -I -c`` does; words are its arguments."""
    with tempfile.TemporaryDirectory(prefix="limbeck-stranger-") as place, socket.socket(socket.AF_UNIX) as wire:
        out, err = Path(place, "out"), Path(place, "err")
        order = {"code": code, "words": words, "folder": str(folder), "out": str(out), "err": str(err)}
        wire.connect(address_of_the_first())
        wire.sendall(json.dumps(order).encode() + b"\n")
        with wire.makefile() as answer:
            status = int(answer.readline())
        return subprocess.CompletedProcess(
            ["python", "-I", "-c", code, *words], status, out.read_text(), err.read_text()
        )


def print_of_program(program: str, folder: Path) -> str:
    """Run a program in a process of its own, which has neither our code nor torch and transformers; return what it
    prints."""
    command = [sys.executable, "-I", "-c", NOTHING_ELSE + program]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, program + done.stderr.decode()[-2000:]
    return done.stdout.decode().removesuffix("\n")


def address_of_the_first() -> str:
    """Return the socket of the process that forks; who asks first starts it, for all of pytest's workers. It ends with
    the process that began the tests."""
    place = folder_of_session()
    with locked(place / "stranger.lock"):
        if not (place / "stranger").exists():
            known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            words = [str(place / "stranger"), os.environ[OWNER]]
            process = subprocess.Popen(
                [sys.executable, "-I", str(Path(__file__).with_name("stranger.py")), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=known,
                start_new_session=True,
            )
            assert process.stdout is not None
            assert process.stdout.readline(), "the process that forks strangers did not start"
    return str(place / "stranger")
