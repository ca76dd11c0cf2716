"""A small web server of a test's own, on a port of this machine, and ports that nobody listens on."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LENT = range(20_000, 30_000)
"""Ports that tests are given: below those that kernels give to outgoing connections (32,768 and up on Linux)."""


@contextlib.contextmanager
def answered_by(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve by a handler in a thread; yield the port on 127.0.0.1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on, and that no test is given again, in this process
    or in another, while this process lives: between its choice and its server's start nobody else may take it."""
    leases, given = port_leases(os.getpid())
    for port in random.Random().sample(LENT, len(LENT)):
        if port in given:
            continue
        with contextlib.suppress(OSError):
            fcntl.lockf(leases, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            given.add(port)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port of {LENT.start} to {LENT.stop - 1} is free")


@functools.cache
def port_leases(process: int) -> tuple[io.IOBase, set[int]]:
    """Return the file whose bytes stand for ports, and the ports that this process has locked in it: the kernel frees
    them when the process ends. A process that was forked has locked none."""
    return (Path(tempfile.gettempdir()) / f"limbeck-test-ports-{os.getuid()}").open("ab"), set()
