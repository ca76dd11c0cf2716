"""Ports of tests: two servers never start on one, in whichever process a test asks for its port."""

from __future__ import annotations

import functools
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import web_server

ASKED = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from tests import web_server
web_server.LENT = range(int(sys.argv[2]), int(sys.argv[3]))
print(web_server.free_port(), flush=True)
sys.stdin.read()
"""


def test_a_port_is_given_once_while_its_process_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(port for port in range(31_000, 32_000) if all(is_free(port + more) for more in range(3)))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(web_server, "LENT", range(first, first + 3))
    monkeypatch.setattr(web_server, "port_leases", functools.cache(web_server.port_leases.__wrapped__))
    words = [sys.executable, "-c", ASKED, str(tmp_path), str(first), str(first + 3)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and other.stdin
        given = [int(other.stdout.readline()), web_server.free_port(), web_server.free_port()]
        assert sorted(given) == [first, first + 1, first + 2]
        with pytest.raises(OSError, match="is free"):
            web_server.free_port()
        other.stdin.close()
    assert web_server.free_port() == given[0], "what a process leaves behind is given again"


def is_free(port: int) -> bool:
    """Tell whether nobody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
