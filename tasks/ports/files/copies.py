"""Copies with a digest of the copied bytes, so that an edit of the original during the copy cannot make them differ."""

from __future__ import annotations

import fcntl
import sys
from hashlib import sha256
from pathlib import Path
from typing import IO

from tasks.ports.code.fingerprint import hash_now

FICLONE = 0x40049409  # ioctl of Linux: share the blocks of another file until either is written (Btrfs, XFS, bcachefs)
CHUNK = 2**20  # bytes


def copy_hashed(source: Path, target: Path) -> str:
    """Copy a file and return the sha256 of the copy.

    The blocks are shared if the file system supports it; else the bytes are read once, and hashed as they are written.
    Raises OSError if a file cannot be read or written.
    """
    with source.open("rb") as original, target.open("xb") as copy:
        if not clone(original, copy):
            digest = sha256()
            while chunk := original.read(CHUNK):
                digest.update(chunk)
                copy.write(chunk)
            return digest.hexdigest()
    return hash_now(target)


def clone(original: IO[bytes], copy: IO[bytes]) -> bool:
    """Let a new file share the blocks of another; return whether the file system supports it."""
    if sys.platform != "linux":
        return False
    try:
        fcntl.ioctl(copy.fileno(), FICLONE, original.fileno())
    except OSError:  # two different file systems, or no support
        return False
    return True
