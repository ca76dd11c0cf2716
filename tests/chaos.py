"""A proxy on 127.0.0.1 that breaks connections the way networks do: it refuses, hangs, answers 503, or cuts an answer
in the middle."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Chaos:
    """What goes wrong now; each number counts down to nothing."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        self.down = False
        self.busy = 0  # connections that are answered 503
        self.hang = 0  # connections that are never answered
        self.cut = 0  # answers that end early
        self.cut_after = 1000  # bytes of an answer that is cut
        self.deaf = 0  # requests that arrive, and whose answer is lost
        self.sent = 0  # bytes that came from clients
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))

    @property
    def endpoint(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def take(self, name: str) -> bool:
        """Count one fault down; tell whether it is due."""
        with self.lock:
            left = int(getattr(self, name))
            setattr(self, name, max(0, left - 1))
            return left > 0

    def serve(self) -> None:
        """Accept until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.handle, args=(client,), daemon=True).start()

    def handle(self, client: socket.socket) -> None:
        """Serve one connection, or break it."""
        with client, contextlib.suppress(OSError):
            if self.down:
                return
            if self.take("hang"):
                client.settimeout(120)
                while client.recv(65536):
                    pass
                return
            if self.take("busy"):
                client.recv(65536)
                client.sendall(BUSY)
                return
            with socket.create_connection(self.upstream) as server:
                up = threading.Thread(target=self.pump, args=(client, server, False), daemon=True)
                up.start()
                self.pump(server, client, True)

    def pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        """Pass bytes on; break off where it is due."""
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.down or (answers and self.take("deaf")):
                    break
                if answers and self.cut and passed + len(data) > self.cut_after and self.take("cut"):
                    target.sendall(data[: max(0, self.cut_after - passed)])
                    break
                target.sendall(data)
                passed += len(data)
                if not answers:
                    self.sent += len(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def chaos_before(endpoint: str) -> Iterator[Chaos]:
    """Run a proxy before a server."""
    parts = urlsplit(endpoint)
    chaos = Chaos((parts.hostname or "127.0.0.1", parts.port or 80))
    threading.Thread(target=chaos.serve, daemon=True).start()
    try:
        yield chaos
    finally:
        chaos.listener.close()
