"""Leases: of all workers that need the same key, only one computes it.

In a folder, the lease is a kernel file lock, which is released as soon as its holder dies. In a bucket, a lease is an
object that its holder rewrites at regular intervals; a lease that was not renewed for its whole length has expired.
Each lease of a key has a number. A worker takes over by creating the next number, and a conditional PUT lets only one
worker succeed. The age of a lease is measured by the bucket's clock alone, so workers with wrong clocks agree. If that
clock jumps, a waiting worker sees ages that contradict its own waiting time; it then uses its waiting time, measured by
the kernel's monotonic clock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import stat
import threading
import time
import uuid
from pathlib import Path
from typing import cast

from tasks.errors import LeaseLost, LeaseTaken, StoreError
from tasks.ports.store.bucket import Bucket
from tasks.ports.store_documents import LeaseNote

POLL = 0.2  # seconds between two attempts to get a kernel lock that another worker holds
BEATS = 4  # renewals of a lease in a bucket within its length

log = logging.getLogger("limbeck.store")


class KernelLease:
    """A lease by a kernel file lock: released as soon as its holder dies, and never held by two workers."""

    def __init__(self, path: Path) -> None:
        self.path, self.handle = path, -1

    def acquire(self, note: LeaseNote) -> bool:
        """Try once to get the lease; on success, write the holder and the note into the lock file."""
        handle = open_lock(self.path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self.handle = handle
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({**holder(), **note}).encode(), 0)
        return True

    def note_of_holder(self) -> LeaseNote | None:
        """Return the holder's note, or None if the lock is free."""
        handle = open_lock(self.path)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            return note_from(self.path.read_bytes(), self.path.name)
        finally:
            os.close(handle)

    def assert_held(self) -> None:
        """Raise LeaseLost if another process has replaced the lock file."""
        try:
            same = os.fstat(self.handle).st_ino == self.path.stat().st_ino
        except OSError:
            same = False
        if not same:
            raise lost(self.path.name)

    def release(self) -> None:
        """Release the lease; the file stays, so that two waiting workers never lock two different files of one name."""
        os.close(self.handle)
        self.handle = -1


def open_lock(path: Path) -> int:
    """Open a lock file, and let all write to it who may write to its folder: it stays after its holder, and would lock
    out the other users of a shared store.

    Raises StoreError if it belongs to another user, who did not let others write.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError as error:
        raise StoreError(
            f"the lock file {path} belongs to another user of this store, who has to let others write to it: "
            f"chmod g+rw {path}, and chmod g+w {path.parent}"
        ) from error
    others = path.parent.stat().st_mode & 0o022
    mode = 0o600 | others | others << 1
    if os.fstat(handle).st_uid == os.geteuid() and stat.S_IMODE(os.fstat(handle).st_mode) != mode:
        os.fchmod(handle, mode)
    return handle


class Watch:
    """The age of another worker's lease as a waiting worker has observed it, by its own clock and by the bucket's."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.number, self.age, self.since = 0, 0.0, 0.0
        self.by_age = True

    def is_dead(self, number: int, age: float) -> bool:
        """Return whether a lease was not renewed for its length; ``age`` is in seconds by the bucket's clock."""
        now = time.monotonic()
        off = age - self.age - (now - self.since)
        if number != self.number or abs(off) > self.seconds / BEATS:
            # It is another lease, or the lease was renewed and is younger than expected. If it is much older than
            # expected, the bucket's clock was set ahead: the lease may be alive, and is observed for its whole length.
            self.by_age = number != self.number or off < 0
            self.number, self.age, self.since = number, age, now
        return (self.by_age and age > self.seconds) or now - self.since > self.seconds


class BucketLease:
    """A numbered lease in a bucket, renewed by its own thread while it is held."""

    def __init__(self, bucket: Bucket, key: str, seconds: float) -> None:
        self.bucket, self.key, self.seconds = bucket, key, seconds
        self.number, self.body = 0, b""
        self.watch = Watch(seconds)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.renew, name=f"lease {key[:12]}", daemon=True)

    @property
    def prefix(self) -> str:
        """Prefix of the names of this key's leases."""
        return f"leases/{self.key}/"

    def acquire(self, note: LeaseNote) -> bool:
        """Try once to get the lease. A key is free if its latest lease was released or was not renewed for its
        length."""
        latest = self.newest_lease()
        if latest and not self.is_free(latest):
            return False
        number = latest[0] + 1 if latest else 1
        body = json.dumps({**holder(), **note, "token": uuid.uuid4().hex}).encode()
        if not self.bucket.create(self.name(number), body):
            return False
        self.number, self.body = number, body
        for old in [entry for entry in self.bucket.entries(self.prefix) if number_of(entry.name) < number]:
            self.bucket.delete(old.name)
        self.thread.start()
        return True

    def newest_lease(self) -> tuple[int, float, int] | None:
        """Return number, age in seconds by the bucket's clock, and size of the latest lease."""
        found = [(number_of(entry.name), entry.age, entry.size) for entry in self.bucket.entries(self.prefix)]
        return max(found, default=None)

    def is_free(self, latest: tuple[int, float, int]) -> bool:
        """Return whether a lease is free: an empty object was released, an old one has expired."""
        number, age, size = latest
        return size == 0 or self.watch.is_dead(number, age)

    def note_of_holder(self) -> LeaseNote | None:
        """Return the holder's note, or None if the lease is free."""
        latest = self.newest_lease()
        if latest is None or self.is_free(latest):
            return None
        return note_from(self.bucket.read(self.name(latest[0])) or b"", self.key)

    def renew(self) -> None:
        """Rewrite the lease at intervals until it is released or another worker takes over."""
        while not self.done.wait(self.seconds / BEATS):
            try:
                if not self.renew_once():
                    return
            except StoreError as error:
                log.warning("the lease %s could not be renewed (%s); trying again", self.key[:12], error)

    def renew_once(self) -> bool:
        """Rewrite the lease if it is still ours; return whether it is."""
        if not self.is_ours():
            return False
        self.bucket.write(self.name(self.number), self.body)
        return True

    def is_ours(self) -> bool:
        """Return whether our lease is the latest one."""
        latest = self.newest_lease()
        return latest is not None and latest[0] == self.number

    def assert_held(self) -> None:
        """Raise LeaseLost if another worker took over."""
        if not self.is_ours():
            raise lost(self.key)

    def release(self) -> None:
        """Release the lease at once; if the bucket does not respond, the lease expires later."""
        self.done.set()
        self.thread.join()
        with contextlib.suppress(StoreError):
            if self.is_ours():
                self.bucket.write(self.name(self.number), b"")

    def name(self, number: int) -> str:
        """Return the name of a lease; names have the same order as numbers."""
        return f"{self.prefix}{number:012d}"


def number_of(name: str) -> int:
    """Return a lease's number, or 0 for any other object."""
    last = name.rsplit("/", 1)[-1]
    return int(last) if last.isdecimal() else 0


def note_from(body: bytes, key: str) -> LeaseNote:
    """Return a lease's note; a partly written note has at least the key."""
    try:
        values = json.loads(body)
    except ValueError:
        values = None
    return {"key": key, **cast(LeaseNote, values)} if isinstance(values, dict) else {"key": key}


def holder() -> LeaseNote:
    """Return host and process id of this worker, for people who inspect a lease."""
    return {"host": socket.gethostname(), "pid": os.getpid()}


def lost(key: str) -> LeaseLost:
    """Return the error of a worker that has lost its lease."""
    return LeaseLost(f"the lease {key[:12]} was taken over by another worker; the result of this one is not published")


def taken(key: str) -> LeaseTaken:
    """Return the error of a worker that did not want to wait."""
    return LeaseTaken(f"another worker is computing {key[:12]}; wait for it")
