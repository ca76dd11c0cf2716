"""Output files of commands: a file that cannot be written is refused before the work, not after hours of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tasks.errors import RecipeError

OF_THE_DISK = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOENT,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.EIO,
)
"""Errors of the operating system that a user can correct; others are bugs of Limbeck."""


def writable(file: Path | None) -> Path | None:
    """Return the file of an option; an existing file will be replaced. Raises RecipeError if it cannot be written."""
    if file is None:
        return None
    target = file.absolute()
    try:
        if not target.parent.is_dir():
            raise RecipeError(
                f"the folder {str(target.parent)!r} for {target.name} does not exist; create it, or name another file"
            )
        if target.exists() and not target.is_file():
            raise RecipeError(f"{file} exists and is not a file; name another file")
        if not os.access(target.parent, os.W_OK | os.X_OK) or (target.exists() and not os.access(target, os.W_OK)):
            raise RecipeError(f"{file} cannot be written; name a file in a writable folder")
    except OSError as error:  # a name that is too long
        raise RecipeError(
            f"{str(file)[:100]!r} is not a valid file name ({error.strerror}); name another file"
        ) from error
    return file


def disk_sentence(error: OSError) -> str:
    """Return a message about an error of a file or disk."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full{where}; free some space, and run the same command again"
    return (
        f"a file cannot be written or read{where}: {(error.strerror or str(error)).lower()}; free some space or fix "
        f"the error, and run the same command again"
    )
