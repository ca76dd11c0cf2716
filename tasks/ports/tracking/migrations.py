"""A lock for the creation or migration of a SQLite database: Prefect and MLflow expect to be the only process then,
which two concurrent runs in a new home are not."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tasks.errors import StoreError
from tasks.ports.file_locks import take_lock

MIGRATION_SECONDS = 600.0  # seconds; a migration of a large database takes minutes


@contextlib.contextmanager
def one_at_a_time(database: str) -> Iterator[None]:
    """Hold the lock of a SQLite database; the kernel releases it when its holder dies.

    Other databases have locks and servers of their own.
    """
    file = file_of(database)
    if file is None:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    refusal = StoreError(
        f"another process has been preparing the database {file} for ten minutes; stop it and try again"
    )
    with os.fdopen(os.open(file.with_name(f".{file.name}.lock"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as handle:
        take_lock(handle, MIGRATION_SECONDS, refusal)
        yield


def file_of(database: str) -> Path | None:
    """Return the file of a SQLite address, or None for other databases."""
    driver, found, path = database.partition(":///")
    name = unquote(path.partition("?")[0])
    return Path(name) if found and driver.split("+")[0] == "sqlite" and name not in ("", ":memory:") else None
