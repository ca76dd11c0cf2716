"""Checks of the machine itself: disk, memory, clock, GPUs."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

from flows.stack import supervision
from flows.stack.checks.finding import BAD, OK, WARNING, Finding
from flows.stack.programs import find
from flows.stack.settings import Stack

GIGABYTE = 2**30
MEMORY = 3.0  # GiB that the stack takes by itself, measured with two API servers, MLflow, radosgw and two idle workers
DISK = 10.0  # GiB
SKEW = 60.0  # seconds; S3 refuses at 15 minutes, but leases and heartbeats need better
UNSYNCHRONISED = 5  # TIME_ERROR: the return value of adjtimex for a clock that is not synchronised


def machine(stack: Stack) -> Iterator[Finding]:
    """Report free disk space and memory."""
    place = next(folder for folder in (stack.data.resolve(), *stack.root.parents) if folder.exists())
    free = shutil.disk_usage(place).free / GIGABYTE
    state = BAD if free < DISK / 10 else WARNING if free < DISK else OK
    yield Finding(
        "disk",
        state,
        f"{free:.1f} GiB free under {place}",
        f"free some disk space: {DISK:.0f} GiB is the minimum for models" if state != OK else "",
    )
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    memory = int(lines["MemAvailable"].split()[0]) / 2**20
    short = memory < MEMORY and supervision.connect(stack) is None
    yield Finding(
        "memory",
        WARNING if short else OK,
        f"{memory:.1f} GiB available; the stack takes about {MEMORY:.0f} before any training",
    )


def clock(stack: Stack) -> Iterator[Finding]:
    """Report whether this machine's clock is synchronised, and whether it agrees with a foreign S3 server's."""
    # a zeroed request sets nothing and returns the state
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    kept = state != UNSYNCHRONISED
    said = "synchronised with a time server" if kept else "not synchronised, according to the kernel"
    yield Finding(
        "clock",
        OK if kept else WARNING,
        said,
        "" if kept else "start an NTP service, for example systemd-timesyncd or chrony",
    )
    if stack.settings.s3.startswith("http"):
        off = clock_difference(stack.endpoint)
        if off is not None:
            yield Finding(
                "clock against S3",
                OK if off < SKEW else BAD,
                f"{off:.0f} s apart",
                "" if off < SKEW else "set this machine's clock",
            )


def clock_difference(url: str) -> float | None:
    """Return the difference between a server's clock and this machine's in seconds; None if it reports no time."""
    import time
    import urllib.error
    import urllib.request

    try:
        headers = urllib.request.urlopen(url, timeout=5).headers
    except urllib.error.HTTPError as error:
        headers = error.headers
    except OSError:
        return None
    return abs(parsedate_to_datetime(headers["Date"]).timestamp() - time.time()) if headers["Date"] else None


def gpu(stack: Stack) -> Iterator[Finding]:
    """Report the GPUs that nvidia-smi lists."""
    tool = find("nvidia-smi")
    done = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30) if tool else None
    seen = [line.split(" (UUID")[0] for line in done.stdout.splitlines()] if done and done.returncode == 0 else []
    yield Finding("GPU", OK, "; ".join(seen) or "none found: stages run on the CPU")
