"""The sources that engines run: a copy of the package as hashed into keys, named by its digest, in the home folder's
cache.

A run hashes the sources when it starts, and may start its last engine a day later. To compute every result with the
code in its key, engines run from this copy and not from the working folder, whose files may be edited meanwhile. A copy
is checked each time before use; if a file is changed, missing or additional, the copy is written again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from tasks.own_sources import PACKAGE, files_as_read

ATTEMPTS = 5  # to move a copy into its place, while other processes do the same
UNUSED = 7 * 86400  # seconds after which a copy without engine starts is deleted


def sources_folder() -> Path:
    """Return the folder that holds the package as this process read it, and nothing else."""
    place = copies() / digest()
    if PACKAGE.parent == place.resolve():  # this process runs from such a copy
        return place
    if not is_whole(place):
        write(place)
        sweep(place)
    os.utime(place)
    return place


def copies() -> Path:
    """Return the folder of all copies."""
    return Path(os.environ.get("LIMBECK_HOME", "~/.limbeck")).expanduser().absolute() / "cache" / "sources"


@cache
def contents() -> dict[str, bytes]:
    """Return the package's files by relative path."""
    return {file.path.relative_to(PACKAGE.parent).as_posix(): file.body for file in files_as_read().values()}


@cache
def digest() -> str:
    """Return the digest of the package's files with their paths."""
    whole = sha256()
    for name, body in sorted(contents().items()):
        whole.update(f"{name} {len(body)}\n".encode() + body)
    return whole.hexdigest()


def is_whole(place: Path) -> bool:
    """Tell whether a copy holds exactly the files that were read, byte for byte: no links, no compiled code."""
    wanted, found = contents(), set[str]()
    try:
        for path in place.rglob("*"):
            name = path.relative_to(place).as_posix()
            if path.is_symlink() or (not path.is_dir() and path.read_bytes() != wanted.get(name)):
                return False
            if not path.is_dir():
                found.add(name)
    except OSError:
        return False
    return found == wanted.keys() and not place.is_symlink()


def write(place: Path) -> None:
    """Write a complete copy or none; a damaged one is replaced."""
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    bad = fresh.with_name(fresh.name.replace("new", "bad"))
    try:
        for name, body in contents().items():
            file = fresh / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body)
        for _ in range(ATTEMPTS):  # another process may be writing it, too
            with suppress(OSError):
                fresh.rename(place)
            if is_whole(place):
                return
            with suppress(OSError):
                place.rename(bad)
        raise OSError(f"the engine sources cannot be stored in {place}")
    finally:
        for left in (fresh, bad):
            shutil.rmtree(left, ignore_errors=True)


def sweep(kept: Path) -> None:
    """Delete unused copies; a running engine has read all of its sources at its start."""
    for other in kept.parent.iterdir():
        with suppress(OSError):
            if other != kept and time.time() - other.stat().st_mtime > UNUSED:
                shutil.rmtree(other, ignore_errors=True)
