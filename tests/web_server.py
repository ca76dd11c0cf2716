"""A small web server of a test's own, on a port of this machine."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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
