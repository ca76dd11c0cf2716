"""The identity of a run's process, and whether it still exists: the janitor checks this before it ends another
process's run."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def this_process() -> str:
    """Return host, process id and start time of this process; the start time distinguishes it from a later process with
    the same id."""
    return f"{socket.gethostname()}:{os.getpid()}:{started(os.getpid())}"


def is_gone(process: str) -> bool | None:
    """Return whether a process of this host has ended; None for a process of another host, because that is unknown
    here."""
    host, _, known = process.partition(":")
    pid, _, start = known.partition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return None
    return started(int(pid)) != start


def started(pid: int) -> str:
    """Return the start time of a process in the kernel's ticks since boot; empty if it does not exist or is a
    zombie."""
    try:
        # The program's name, in brackets, may contain any characters; the fields after it are plain.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
