"""The files of an index: empty files of a folder store, and empty objects of a bucket."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from tasks.errors import StoreError
from tasks.ports.store.bucket import Bucket


class FolderIndex:
    """The files of an index below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        """Return the names of all entries."""
        stages = [path for path in files_below(self.root) if path.is_dir(follow_symlinks=False)]
        return [f"{stage.name}/{entry.name}" for stage in stages for entry in files_below(stage.path)]

    def add(self, names: Collection[str]) -> None:
        """Add entries. A failure is ignored, because the next plan adds them."""
        with contextlib.suppress(OSError):
            for name in names:
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                (self.root / name).touch()

    def remove(self, names: Collection[str]) -> None:
        """Remove entries; missing ones are no error."""
        for name in names:
            (self.root / name).unlink(missing_ok=True)


def files_below(folder: Path | str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none for one that does not exist."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


class BucketIndex:
    """The files of an index in a bucket: empty objects, of which one listing returns a thousand names."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def names(self) -> list[str]:
        """Return the names of all entries."""
        return [entry.name.removeprefix("index/") for entry in self.bucket.entries("index/")]

    def add(self, names: Collection[str]) -> None:
        """Add entries. A failure is ignored, because the next plan adds them."""
        first, *others = [f"index/{name}" for name in names] or [""]
        with contextlib.suppress(StoreError):  # without the right to write, the first attempt is the only one
            if first:
                self.bucket.write(first, b"")
            list(self.bucket.pool.map(lambda name: self.bucket.write(name, b""), others))

    def remove(self, names: Collection[str]) -> None:
        """Remove entries; missing ones are no error."""
        list(self.bucket.pool.map(lambda name: self.bucket.delete(f"index/{name}"), names))
