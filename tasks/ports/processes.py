"""Which process a run belongs to, and whether it is still there: what a janitor must know before it ends a run for
somebody else."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def this_process() -> str:
    """Return host, process id and start time of this process: a number that is used again does not make a dead process
    alive."""
    return f"{socket.gethostname()}:{os.getpid()}:{started(os.getpid())}"


def is_gone(process: str) -> bool | None:
    """Tell whether a process of this host has ended; None for one of another host, of which nothing is known here."""
    host, _, known = process.partition(":")
    pid, _, start = known.partition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return None
    return started(int(pid)) != start


def started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks since boot; empty if there is none, or if it is a zombie."""
    try:
        # The name of the program, in brackets, may hold anything; what follows it is plain.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
