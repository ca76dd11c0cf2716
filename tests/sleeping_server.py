"""A process in the place of a run's own Prefect server, watched as that is."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator

from flows.servers import watch
from flows.servers.access import Access
from flows.servers.watch import OwnServer
from tasks.errors import EngineError


class Sleeping:
    """A process in a server's place."""

    def __init__(self, command: list[str]) -> None:
        self.process, self.access = subprocess.Popen(command, start_new_session=True), Access.new("http://127.0.0.1:9")

    def wait(self) -> None:
        """Wait a moment; a process that has ended meanwhile does not answer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.3)
            raise EngineError("it did not start")


@contextlib.contextmanager
def own(*commands: list[str]) -> Iterator[OwnServer]:
    """Watch a process that is started by the first command, and again by the others in turn."""
    left = [["sleep", "600"], *commands]
    closed = threading.Event()
    server = OwnServer(lambda: Sleeping(left.pop(0)), closed.set)
    server.ready()
    try:
        yield server
        assert closed.is_set() == bool(server.lost)  # where nobody answers any more, no request waits
    finally:
        server.leave()
        watch.kill_group(server.process)
        server.closed.set()
