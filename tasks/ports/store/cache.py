"""A local cache of artifacts that live elsewhere: read through, bounded, and never emptied under the feet of whoever reads it.

Each artifact in use is held by a shared lock of the kernel, which ends with the process that holds it; only what no process holds can go.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from tasks.ports.store.artifacts import bytes_of, is_whole


class ArtifactCache:
    """Artifacts under ``root``, the least recently used going first when there are more than ``limit`` bytes."""

    def __init__(self, root: Path, limit: int) -> None:
        self.root, self.limit = root, limit
        self.held: dict[str, int] = {}
        self.lock = threading.Lock()
        for name in ("objects", "locks", "temporary"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def folder(self, digest: str, fetch: Callable[[Path], None]) -> Path:
        """Return the files of an artifact; what is not here, or not whole any more, is fetched into a new folder, checked by ``fetch``."""
        self.hold(digest)
        final = self.path(digest)
        if final.is_dir() and is_whole(final, digest, remember=True):
            os.utime(final)
            return final
        temporary = self.root / "temporary" / f"{os.getpid()}-{uuid.uuid4().hex}"
        try:
            temporary.mkdir()
            fetch(temporary)
            self.put(digest, temporary)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return final

    def put(self, digest: str, folder: Path) -> None:
        """Move a whole artifact into the cache, then make room. Where another process was faster its copy stays: it may be read right now."""
        self.hold(digest)
        final = self.path(digest)
        with self.alone():
            final.parent.mkdir(exist_ok=True)
            if final.is_dir() and is_whole(final, digest, remember=True):
                shutil.rmtree(folder)
                return
            if final.is_dir():
                final.rename(self.root / "temporary" / f"old-{uuid.uuid4().hex}")
            folder.rename(final)
            self.make_room()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes of this host from changing the cache meanwhile; whoever only reads is not kept."""
        with (self.root / "changing").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def hold(self, digest: str) -> None:
        """Keep an artifact from being removed for as long as this process lives."""
        with self.lock:
            if digest in self.held:
                return
            handle = os.open(self.root / "locks" / digest, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(handle, fcntl.LOCK_SH)
            self.held[digest] = handle

    def make_room(self) -> None:
        """Remove what was not used for longest, until the rest fits; what a process holds stays."""
        for old in (self.root / "temporary").glob("old-*"):
            shutil.rmtree(old, ignore_errors=True)
        found = sorted((folder.stat().st_mtime, bytes_of(folder), folder) for folder in (self.root / "objects").glob("*/*"))
        excess = sum(size for _, size, _ in found) - self.limit
        for _, size, folder in found:
            if excess <= 0:
                return
            if self.remove(folder):
                excess -= size

    def remove(self, folder: Path) -> bool:
        """Remove an artifact unless a process holds it."""
        handle = os.open(self.root / "locks" / folder.name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(handle)

    def path(self, digest: str) -> Path:
        """Return where an artifact lies."""
        return self.root / "objects" / digest[:2] / digest
