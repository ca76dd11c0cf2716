"""The command line of Limbeck, killed by its own hand at a chosen moment: ``python -m tests.suites.doomed PLAN WORD
…``.

A *window* is a function of the product. A moment inside it is the n-th line of Python, of any library, that is executed
in its k-th call or in the first one after it that does something; there the process kills itself with SIGKILL, and with
it, if the plan says so, its engines, as when a machine vanishes. The plan is JSON:

    {"record": FILE}                                    count the lines of every call, and kill nobody
    {"window": NAME, "call": K, "line": N, "least": M}    die inside a window; a call of fewer than M lines did nothing
    {"after": SECONDS}                                   die after some time, wherever that is
    {"ahead": SECONDS}                                   a run whose clock is wrong, for Limbeck and S3 signatures
    {}                                                  an ordinary run

Whoever dies also needs ``"host": BOOL`` (engines too) and ``"report": FILE`` (where it was).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

WINDOWS = {
    "publish": [("tasks.ports.store.folder", "FolderStore", "publish"), ("tasks.ports.store.s3", "S3Store", "publish")],
    "rename": [("pathlib", "Path", "rename")],
    "manifest": [("tasks.ports.store.s3", "S3Store", "commit")],
    "renewal": [("tasks.ports.store.leases", "BucketLease", "renew_once")],
    "checkpoint": [("tasks.ports.store.checkpoint_sync", "SyncedCheckpoints", "send_new")],
    "registration": [("tasks.ports.tracking.tracker", "Tracker", "register")],
}
LEASE_SECONDS = 6.0  # a dead holder's lease is waited for
LOOK = 0.2  # seconds between two looks for a new checkpoint: the chain of these suites is short


class Lines:
    """Counts the lines of Python that one thread executes, and calls ``due`` before line ``limit``."""

    def __init__(self, limit: int | None = None, due: Callable[[str], None] | None = None) -> None:
        self.limit, self.due, self.count = limit, due, 0

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """Be told of every line."""
        if event == "line":
            self.count += 1
            if self.due is not None and self.count == self.limit:
                self.due(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        return self.trace

    def __enter__(self) -> Lines:
        self.before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)


def watch(window: str, function: Callable[..., Any], numbers: Any, plan: dict[str, Any]) -> Callable[..., Any]:
    """Count the lines of a window's calls, or die in one of them."""

    @wraps(function)
    def watched(*given: Any, **named: Any) -> Any:
        call = next(numbers)
        if "record" in plan:
            with Lines() as lines:
                result = function(*given, **named)
            note(plan["record"], {"window": window, "call": call, "lines": lines.count})
            return result
        if call < plan["call"]:
            return function(*given, **named)
        with Lines(plan["line"], lambda where: die(plan, where)) as lines:
            result = function(*given, **named)
        if lines.count >= plan["least"]:
            die(plan, "its last moment")
        return result

    return watched


def prepare(plan: dict[str, Any]) -> None:
    """Put the watch on the windows of a plan; shorten what would only be waited for."""
    import importlib

    from tasks.ports.store import checkpoint_sync, s3

    checkpoint_sync.CHECKPOINT_POLL_SECONDS = LOOK
    if "ahead" in plan:
        set_clock(plan["ahead"])
    (s3.S3Store.__init__.__kwdefaults__ or {})["lease_seconds"] = LEASE_SECONDS
    for window in WINDOWS if "record" in plan else [plan["window"]] if "window" in plan else []:
        numbers = itertools.count(1)
        for module, name, method in WINDOWS[window]:
            owner = getattr(importlib.import_module(module), name)
            setattr(owner, method, watch(window, getattr(owner, method), numbers, plan))
    if "after" in plan:
        threading.Thread(target=lambda: (time.sleep(plan["after"]), die(plan, "some moment")), daemon=True).start()


def set_clock(ahead: float) -> None:
    """Let this process believe that it is later than it is."""
    import datetime

    import botocore.auth

    now, shift = time.time, datetime.timedelta(seconds=ahead)
    time.time = lambda: now() + ahead
    botocore.auth.get_current_datetime = lambda: datetime.datetime.now(datetime.UTC).replace(tzinfo=None) + shift


def die(plan: dict[str, Any], where: str) -> None:
    """Kill the engines, if the whole machine is to vanish, and this process."""
    note(plan["report"], {"where": where})
    if plan["host"]:
        for child in children(os.getpid()):
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(child, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def children(parent: int) -> list[int]:
    """Return the processes that a process has started, and those that they have started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has just ended
            if int(fields[1]) == parent:
                found += [*children(int(folder.name)), int(folder.name)]
    return found


def note(path: str, values: dict[str, Any]) -> None:
    """Append a line to a file that outlives this process."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, json.dumps(values).encode() + b"\n")
    os.close(handle)


if __name__ == "__main__":
    prepare(json.loads(sys.argv[1]))
    del sys.argv[1]
    from flows.cli.app import main

    main()
