"""Checkpoint folders that are either complete or ignored: a crash, a full disk or a network may leave one incomplete.

Besides its files a checkpoint holds a marker, written last, with the size and the sha256 of each file and the name of
its training. The previous checkpoint is kept in case the newest one does not match its marker.
"""

from __future__ import annotations

import json
import os
from hashlib import file_digest
from pathlib import Path
from typing import TypedDict

MARKER = "whole.json"
SNAPSHOTS = "snapshots"
"""The folder of snapshots beside a trained model: weights of early steps, with which a later training begins."""
KEPT_CHECKPOINTS = 2
"""Newest checkpoints of a training that stay, on the disk and in a bucket."""


def write_marker(folder: Path, of: str) -> None:
    """Write a checkpoint's marker, and flush everything in the folder to the disk.

    ``of`` is the name of the training's folder. Raise OSError if the disk refuses.
    """
    (folder / MARKER).write_text(json.dumps({"of": of, "inventory": files_in(folder)}))
    for path in (*folder.iterdir(), folder):
        sync(path)


class FileRecord(TypedDict):
    """A file of a checkpoint."""

    size: int
    sha256: str


class Marker(TypedDict):
    """The marker of a complete checkpoint: the name of its training's folder, and its files."""

    of: str
    inventory: dict[str, FileRecord]


def read_marker(folder: Path, of: str) -> Marker | None:
    """Return the marker of a checkpoint if it matches the folder's files and belongs to this training; else None."""
    try:
        marker: Marker = json.loads((folder / MARKER).read_bytes())
        whole = not folder.is_symlink() and marker["of"] == of and marker["inventory"] == files_in(folder) != {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return marker if whole else None


def files_in(folder: Path) -> dict[str, FileRecord]:
    """Return size and sha256 of a checkpoint's files; raise ValueError if it holds anything but regular files."""
    found: dict[str, FileRecord] = {}
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file():
            raise ValueError(f"{path.name} is not a regular file")
        if path.name != MARKER:
            with path.open("rb") as stream:
                found[path.name] = {"size": path.stat().st_size, "sha256": file_digest(stream, "sha256").hexdigest()}
    return found


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk; raise OSError if that fails."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
