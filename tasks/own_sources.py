"""The sources of this package as this process read them: keys, imports and engines use one and the same text.

A run takes hours, and imports most of its modules when a stage first needs them. If a file were edited meanwhile, the
new text would run under the key of the old one. Therefore every source is read at once at the first import of
``tasks``, and later imports load from that copy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

PACKAGE = Path(__file__).resolve().parent


class SourceFile(NamedTuple):
    """One file as it was read."""

    path: Path
    body: bytes
    modified: float
    """Seconds since the epoch."""


def read_file(path: Path) -> SourceFile:
    """Read a file together with its modification time; repeat if it changes meanwhile."""
    while True:
        with path.open("rb") as stream:
            before = os.fstat(stream.fileno())
            body = stream.read()
            after = os.fstat(stream.fileno())
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and len(body) == after.st_size:
            return SourceFile(path, body, after.st_mtime)


@cache
def files_as_read() -> dict[str, SourceFile]:
    """Return every source file of the package by its module's name; read once per process."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = (PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = read_file(path)
    return found


class AsRead(SourceFileLoader):
    """Loads one module from its source as read."""

    def __init__(self, name: str, source: SourceFile) -> None:
        super().__init__(name, str(source.path))
        self.source = source

    def path_stats(self, path: str) -> dict[str, Any]:
        """Return the time and size with which compiled code is compared: of the source as read, not of the present
        file."""
        return {"mtime": self.source.modified, "size": len(self.source.body)}

    def get_data(self, path: str) -> bytes:
        """Return the source as read, or compiled code from the disk.

        Compiled code written within the second of the source's last change may belong to an earlier text, and is
        rejected.
        """
        if path == self.path:
            return self.source.body
        if os.stat(path).st_mtime < int(self.source.modified) + 1:
            raise OSError(f"{path} may be compiled from an earlier source of the same size and timestamp")
        return super().get_data(path)


class Finder(MetaPathFinder):
    """Finds the modules of this package among the sources as read, and no others."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a module of this package is loaded; a file added after the start does not exist."""
        if not fullname.startswith(f"{PACKAGE.name}."):
            return None
        source = files_as_read().get(fullname)
        if source is None:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        inside = [str(source.path.parent)] if source.path.name == "__init__.py" else None
        return spec_from_file_location(
            fullname, source.path, loader=AsRead(fullname, source), submodule_search_locations=inside
        )


def load_as_read() -> None:
    """Read the package now, and load all of its modules from that copy."""
    files_as_read()
    sys.meta_path.insert(0, Finder())
