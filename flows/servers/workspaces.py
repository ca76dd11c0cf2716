"""Removal of workspaces that a killed Prefect worker leaves in its temporary folder: they hold a run's environment,
and therefore passwords."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

WORKSPACES = "prefect-workspace-attempt-*"
YOUNG = 600.0  # seconds; a worker creates the folder shortly before the process that names it


def sweep_workspaces(folders: Iterable[Path], older: float = YOUNG) -> list[Path]:
    """Remove the user's workspaces that are older than so many seconds and that no process names any more; return
    them."""
    found = [path for folder in folders for path in folder.glob(WORKSPACES) if is_ours(path, older)]
    named = b"\0".join(command_lines()) if found else b""
    left = [path for path in found if os.fsencode(path.name) not in named]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return left


def is_ours(path: Path, older: float) -> bool:
    """Return whether a path is a folder of the current user and old enough."""
    with contextlib.suppress(OSError):
        about = path.lstat()
        return (
            path.is_dir()
            and not path.is_symlink()
            and about.st_uid == os.geteuid()
            and time.time() - about.st_mtime >= older
        )
    return False


def command_lines() -> list[bytes]:
    """Return the command lines of all processes; a run's process names its workspace there."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(process.read_bytes())
    return lines
