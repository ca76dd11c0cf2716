"""An instance metadata service, version 2, that announces the end of its instance when a file is there.

    python -m tests.infra.fake_metadata ADDRESS PORT FILE      the file's text is the notice; FILE.asked: questions

It gives nothing without a token, and its tokens end after a few requests, so that whoever keeps one for ever is found
out.
"""

from __future__ import annotations

import secrets
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NOTICE = "/latest/meta-data/spot/instance-action"
USES = 2  # requests that a token is good for


class Service(ThreadingHTTPServer):
    """The service of one instance."""

    def __init__(self, address: str, port: int, notice: Path) -> None:
        super().__init__((address, port), Handler)
        self.notice, self.asked = notice, notice.with_name(f"{notice.name}.asked")
        self.tokens: dict[str, int] = {}

    def note(self, line: str) -> None:
        """Write down what was asked, and how it was answered."""
        with self.asked.open("a") as notes:
            notes.write(line + "\n")


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Service

    def do_PUT(self) -> None:
        life = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if (
            self.path != "/latest/api/token"
            or not life.isdecimal()
            or not 1 <= int(life) <= 21600
            or "X-Forwarded-For" in self.headers
        ):
            return self.answer(400)
        token = secrets.token_urlsafe(32)
        self.server.tokens[token] = USES
        self.answer(200, token.encode())

    def do_GET(self) -> None:
        token = self.headers.get("X-aws-ec2-metadata-token", "")
        if self.server.tokens.get(token, 0) <= 0:
            return self.answer(401)
        self.server.tokens[token] -= 1
        if self.path != NOTICE or not self.server.notice.is_file():
            return self.answer(404)
        self.answer(200, self.server.notice.read_bytes())

    def answer(self, status: int, body: bytes = b"") -> None:
        """Answer, and note it."""
        self.server.note(f"{self.command} {self.path} {status}")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing on the way."""


if __name__ == "__main__":
    Service(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])).serve_forever()
