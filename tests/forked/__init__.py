"""Engines and packers of tests, forked from one process that has imported their libraries: started anew, each would
take four to six seconds of processor time for its imports.

The process is the product's own fork server, and a fork runs what ``python -m`` would run. Tests about the start of a
process, or about what it imports, start one.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tasks.engine.environment import environment, module_path
from tasks.engine.fork_server import LETTER, ORDER, ForkServer

ROOT = Path(__file__).resolve().parents[2]


class Forks(ForkServer):
    """The server, used without an event loop and from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: dict[int, int] = {}
        self.hearing, self.asking, self.opened = threading.Lock(), threading.Lock(), threading.Event()

    def start_now(
        self, module: str, folder: Path, handles: tuple[IO[Any], IO[Any], IO[Any]], environment: Mapping[str, str]
    ) -> Fork:
        """Fork ``python -m module FOLDER/job.json``: as ``started`` of the packer, and without its imports."""
        with self.asking:
            self.be_there()
            self.take_what_was_told()
            order = {"number": next(self.numbers), "module": module, "folder": str(folder)}
            message = json.dumps(order | {"environment": self.changed(environment)}).encode()
            socket.send_fds(self.wire, [message], [handle.fileno() for handle in handles])
            return Fork(self, order["number"])

    def be_there(self) -> None:
        """Start the process at the first use, and let it import what all forks need."""
        if self.process is None:
            threading.Thread(target=self.start_and_stay, daemon=True).start()
            self.opened.wait()

    def start_and_stay(self) -> None:
        """Start the process from a thread that never ends: it is killed when the thread that started it ends, as that
        of a packer does with its run."""
        try:
            self.open(environment(1) | {"PYTHONPATH": os.pathsep.join([module_path(), str(ROOT)])})
            self.send({"load": __name__})
        finally:
            self.opened.set()
        threading.Event().wait()

    def status_of(self, number: int) -> int:
        """Wait for the end of a fork; return its exit status, the negative number of a signal."""
        with self.hearing:
            while number not in self.ended:
                self.take_one(number)
            return self.ended[number]

    def take_what_was_told(self) -> None:
        """Read of ends that nobody waited for: unread, they would fill the connection, and the server would wait."""
        if self.hearing.acquire(blocking=False):
            try:
                while select.select([self.wire], [], [], 0)[0]:
                    self.take_one()
            finally:
                self.hearing.release()

    def take_one(self, waiting: int = -1) -> None:
        """Read the exit status of one fork; a server that died has taken all forks along."""
        letter = self.wire.recv(LETTER)
        if not letter and waiting < 0:
            raise ConnectionResetError("the fork server of the tests has died")
        said = json.loads(letter) if letter else {"number": waiting, "status": -signal.SIGKILL}
        self.ended[said["number"]] = said["status"]


class Fork:
    """One fork, with the part of the interface of ``subprocess``'s processes that a packer and tests use."""

    def __init__(self, server: Forks, number: int) -> None:
        self.server, self.number = server, number

    def send_signal(self, signal_number: int) -> None:
        """Send a signal to the fork, if it still exists."""
        self.server.tell(self.number, signal_number)

    def kill(self) -> None:
        """End the fork at once."""
        self.server.tell(self.number, signal.SIGKILL)

    def wait(self) -> int:
        """Wait until the fork ends; return its exit status."""
        return self.server.status_of(self.number)


FORKS = Forks()
atexit.register(FORKS.close)


class ForkedJob:
    """An engine that does the job in a folder, as a fork; ``more`` are further variables of its environment."""

    def __init__(self, order: Mapping[str, Any], folder: Path, module: str = "tasks.training", **more: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ORDER).write_text(json.dumps(order))
        reader, writer = os.pipe()
        self.stdout, self.log = os.fdopen(reader), folder / "stderr.log"
        with open(os.devnull, "rb") as nothing, os.fdopen(writer, "wb") as answers, self.log.open("wb") as errors:
            known = environment(1) | more
            self.fork = FORKS.start_now(module, folder, (nothing, answers, errors), known)

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
