"""Leases: of many workers that want a key, one computes.

In a folder the kernel's file lock is the lease: it is free the moment its holder dies. In a bucket there is no kernel:
a lease is an object that its holder writes again and again, and a lease that was not written for a while has died with
its holder. Each lease of a key has a number; to take over is to create the next number, which a conditional PUT grants
to one worker only. The clock of the bucket alone says how old a lease is, so workers whose clocks are wrong agree all
the same. If that clock jumps, whoever waits sees ages that do not fit the time that it has waited, and then goes by
that time: by the kernel's clock that never jumps.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.errors import LeaseLost, LeaseTaken, StoreError
from tasks.ports.store.bucket import Bucket

POLL = 0.2  # seconds between two tries for a kernel lock that another worker holds
BEATS = 4  # how often a lease in a bucket is renewed within its length

log = logging.getLogger("limbeck.store")


class KernelLease:
    """A lease by the kernel's file lock: free at once when its holder dies, and never held by two."""

    def __init__(self, path: Path) -> None:
        self.path, self.handle = path, -1

    def acquire(self, note: Mapping[str, Any]) -> bool:
        """Try once; write down who holds it and for what."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self.handle = handle
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(holder() | dict(note)).encode(), 0)
        return True

    def note_of_holder(self) -> dict[str, Any] | None:
        """Return what the holder wrote down, or None if nobody holds the lock."""
        handle = os.open(self.path, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            return note_from(self.path.read_bytes(), self.path.name)
        finally:
            os.close(handle)

    def assert_held(self) -> None:
        """Raise LeaseLost if the lock file was replaced behind our back."""
        try:
            same = os.fstat(self.handle).st_ino == self.path.stat().st_ino
        except OSError:
            same = False
        if not same:
            raise lost(self.path.name)

    def release(self) -> None:
        """Give the lease back; the file stays, so that two waiters never lock two different files of one name."""
        os.close(self.handle)
        self.handle = -1


class Watch:
    """What a waiter has seen of another's lease: since when it was not renewed, by the waiter's own clock and by the
    bucket's."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.number, self.age, self.since = 0, 0.0, 0.0
        self.by_age = True

    def is_dead(self, number: int, age: float) -> bool:
        """Look at a lease: whether it was not renewed for its length. ``age`` is in seconds by the bucket's clock."""
        now = time.monotonic()
        off = age - self.age - (now - self.since)
        if number != self.number or abs(off) > self.seconds / BEATS:
            # Another lease, or one that was renewed: it is younger than it would be. One that is older by far shows
            # that the bucket's clock was set
            # ahead: it may live all the same, and is watched for its whole length.
            self.by_age = number != self.number or off < 0
            self.number, self.age, self.since = number, age, now
        return (self.by_age and age > self.seconds) or now - self.since > self.seconds


class BucketLease:
    """A numbered lease in a bucket, renewed by a thread of its own for as long as it is held."""

    def __init__(self, bucket: Bucket, key: str, seconds: float) -> None:
        self.bucket, self.key, self.seconds = bucket, key, seconds
        self.number, self.body = 0, b""
        self.watch = Watch(seconds)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.renew, name=f"lease {key[:12]}", daemon=True)

    @property
    def prefix(self) -> str:
        """Where the leases of this key are."""
        return f"leases/{self.key}/"

    def acquire(self, note: Mapping[str, Any]) -> bool:
        """Try once: free is a key whose newest lease was given back, or has not been renewed for its length."""
        newest = self.newest()
        if newest and not self.is_free(newest):
            return False
        number = newest[0] + 1 if newest else 1
        body = json.dumps(holder() | dict(note) | {"token": uuid.uuid4().hex}).encode()
        if not self.bucket.create(self.name(number), body):
            return False
        self.number, self.body = number, body
        for old in [entry for entry in self.bucket.entries(self.prefix) if number_of(entry.name) < number]:
            self.bucket.delete(old.name)
        self.thread.start()
        return True

    def newest(self) -> tuple[int, float, int] | None:
        """Return number, age in seconds by the bucket's clock, and size of the newest lease."""
        found = [(number_of(entry.name), entry.age, entry.size) for entry in self.bucket.entries(self.prefix)]
        return max(found, default=None)

    def is_free(self, newest: tuple[int, float, int]) -> bool:
        """Tell whether nobody holds a lease any more: an empty one was given back."""
        number, age, size = newest
        return size == 0 or self.watch.is_dead(number, age)

    def note_of_holder(self) -> dict[str, Any] | None:
        """Return what the holder wrote down, or None if nobody holds the lease."""
        newest = self.newest()
        if newest is None or self.is_free(newest):
            return None
        return note_from(self.bucket.read(self.name(newest[0])) or b"", self.key)

    def renew(self) -> None:
        """Write the lease again, and again, until it is given back or another worker took over."""
        while not self.done.wait(self.seconds / BEATS):
            try:
                if not self.renew_once():
                    return
            except StoreError as error:
                log.warning("the lease %s could not be renewed (%s); trying again", self.key[:12], error)

    def renew_once(self) -> bool:
        """Write the lease again if it is still ours; tell whether it is."""
        if not self.is_ours():
            return False
        self.bucket.write(self.name(self.number), self.body)
        return True

    def is_ours(self) -> bool:
        """Tell whether no newer lease is there."""
        newest = self.newest()
        return newest is not None and newest[0] == self.number

    def assert_held(self) -> None:
        """Raise LeaseLost if another worker took over."""
        if not self.is_ours():
            raise lost(self.key)

    def release(self) -> None:
        """Give the lease back at once; if the bucket does not answer, time will."""
        self.done.set()
        self.thread.join()
        with contextlib.suppress(StoreError):
            if self.is_ours():
                self.bucket.write(self.name(self.number), b"")

    def name(self, number: int) -> str:
        """Return the name of a lease; names sort as numbers do."""
        return f"{self.prefix}{number:012d}"


def number_of(name: str) -> int:
    """Return a lease's number; something else that lies there counts as none."""
    last = name.rsplit("/", 1)[-1]
    return int(last) if last.isdecimal() else 0


def note_from(body: bytes, key: str) -> dict[str, Any]:
    """Read a lease's note; one that is being written says at least for which key it is."""
    try:
        values = json.loads(body)
    except ValueError:
        values = None
    return {"key": key} | (values if isinstance(values, dict) else {})


def holder() -> dict[str, Any]:
    """Say who holds a lease, for people who look."""
    return {"host": socket.gethostname(), "pid": os.getpid()}


def lost(key: str) -> LeaseLost:
    """Return what a worker hears that was too late."""
    return LeaseLost(f"the lease {key[:12]} was taken over by another worker; what this one made is not published")


def taken(key: str) -> LeaseTaken:
    """Return the error of a worker that did not want to wait."""
    return LeaseTaken(f"another worker is computing {key[:12]}; wait for it")
