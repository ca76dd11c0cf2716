"""A local read-through cache of remote artifacts, with a size limit; artifacts in use are never evicted.

A process holds a shared kernel file lock on each artifact that it uses; the lock ends with the process. Only artifacts
without a lock can be removed.

To look at the size of every file takes long in a large cache, so the bytes that may still be added before the next look
are in a file beside the lock. Whoever adds an artifact takes its bytes off first; what is removed by hand is not put
back. So the number is never too large, also after a process was killed, and a cache is looked at too early at worst.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from tasks.ports.store.artifacts import bytes_of, first_link, is_whole, log, remove_tree
from tasks.ports.store.leases import open_lock

ROOM_NOTE = "room"
"""Name of the file with the limit and the bytes that may be added below it without a look."""


class ArtifactCache:
    """Artifacts under ``root``; above ``limit`` bytes, the least recently used are evicted first."""

    def __init__(self, root: Path, limit: int) -> None:
        self.root, self.limit = root, limit
        self.held: dict[str, int] = {}
        self.lock = threading.Lock()
        for name in ("objects", "locks", "temporary"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def folder(self, digest: str, fetch: Callable[[Path], None]) -> Path:
        """Return the folder of an artifact; if it is missing or damaged, ``fetch`` downloads it into a new folder and
        checks it."""
        self.hold(digest)
        final = self.path(digest)
        if self.holds(digest):
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

    def holds(self, digest: str) -> bool:
        """Return whether an artifact is present and intact, and no part of its path is a link."""
        final = self.path(digest)
        return first_link(self.root, final) is None and is_whole(final, digest, remember=True)

    def put(self, digest: str, folder: Path) -> None:
        """Move a complete artifact into the cache, then evict others if necessary. If another process was faster, keep
        its copy, because it may be in use."""
        self.hold(digest)
        final = self.path(digest)
        with self.alone():
            if self.holds(digest):
                shutil.rmtree(folder)
                return
            self.clear(final)
            final.parent.mkdir(parents=True, exist_ok=True)
            left = self.room() - bytes_of(folder)
            self.note_room(left)
            folder.rename(final)
            self.remove_damaged()
            if left < 0:
                self.make_room()

    def clear(self, path: Path) -> None:
        """Move a damaged artifact out of the way; if its path contains a link, move the link instead."""
        doomed = first_link(self.root, path) or path
        if doomed.is_symlink() or doomed.exists():
            log.warning("%s in the cache %s is damaged; it is fetched again", doomed.name[:12], self.root)
            doomed.rename(self.root / "temporary" / f"old-{uuid.uuid4().hex}")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Block changes of the cache by other processes of this host; readers are not blocked."""
        with (self.root / "changing").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def hold(self, digest: str) -> None:
        """Protect an artifact from removal until this process ends."""
        with self.lock:
            if digest in self.held:
                return
            handle = open_lock(self.root / "locks" / digest)
            fcntl.flock(handle, fcntl.LOCK_SH)
            self.held[digest] = handle

    def room(self) -> int:
        """Return how many bytes may be added before all artifacts are looked at again; negative if that is not known,
        or known for another limit."""
        with contextlib.suppress(OSError, ValueError):
            limit, left = (self.root / ROOM_NOTE).read_text().split()
            return int(left) if int(limit) == self.limit else -1
        return -1

    def note_room(self, left: int) -> None:
        """Note how many bytes may be added; call this alone. Of a note that was not written to its end, the number is
        smaller."""
        (self.root / ROOM_NOTE).write_text(f"{self.limit} {left}")

    def remove_damaged(self) -> None:
        """Remove the artifacts that were moved out of the way."""
        for old in (self.root / "temporary").glob("old-*"):
            with contextlib.suppress(OSError):
                remove_tree(old)

    def make_room(self) -> None:
        """Look at all artifacts, remove the least recently used until the rest fits, and note what may be added; keep
        those that a process holds."""
        found = sorted(
            (folder.lstat().st_mtime, bytes_of(folder), folder) for folder in (self.root / "objects").glob("*/*")
        )
        left = self.limit - sum(size for _, size, _ in found)
        for _, size, folder in found:
            if left >= 0:
                break
            if self.remove(folder) and not folder.exists():
                left += size
        self.note_room(left)

    def unused(self, older: float, *, dry: bool) -> list[str]:
        """Remove artifacts that no process holds and that were unused for ``older`` seconds, unless ``dry``; return the
        digests."""
        old = [
            path for path in sorted((self.root / "objects").glob("*/*")) if time.time() - path.lstat().st_mtime > older
        ]
        with self.alone():
            return [path.name for path in old if (not self.is_held(path) if dry else self.remove(path))]

    def is_held(self, folder: Path) -> bool:
        """Return whether a process holds an artifact."""
        with contextlib.suppress(OSError), (self.root / "locks" / folder.name).open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        return (self.root / "locks" / folder.name).exists()

    def remove(self, folder: Path) -> bool:
        """Remove an artifact unless a process holds it."""
        handle = open_lock(self.root / "locks" / folder.name)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):
                remove_tree(folder)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(handle)

    def path(self, digest: str) -> Path:
        """Return the path of an artifact."""
        return self.root / "objects" / digest[:2] / digest
