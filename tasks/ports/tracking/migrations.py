"""Creation and migration of SQLite databases, under a lock: Prefect and MLflow expect to be the only process then,
which two concurrent runs in a new home are not."""

from __future__ import annotations

import contextlib
import os
import sqlite3
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


def create_mlflow_tables(database: str) -> None:
    """Create MLflow's tables in a SQLite database that holds nothing yet, all or none; the caller holds the lock.

    MLflow migrates an empty database in dozens of steps, and cannot go on from a step at which its process was killed.
    The tables are therefore created in a file beside it, which then takes its name.
    """
    file = file_of(database)
    if file is None or is_in_use(file):
        return
    from mlflow.store.db.utils import _initialize_tables
    from sqlalchemy import create_engine

    scratch = file.with_name(f".{file.name}.new")
    for left in (scratch, scratch.with_name(f"{scratch.name}-journal")):
        left.unlink(missing_ok=True)
    os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    engine = create_engine(f"sqlite:///{scratch}")
    try:
        _initialize_tables(engine)
    finally:
        engine.dispose()
    scratch.replace(file)


def is_in_use(file: Path) -> bool:
    """Return whether a SQLite database holds an experiment or a registered model, or is none of MLflow's."""
    if not file.exists() or not file.stat().st_size:
        return False
    with contextlib.closing(sqlite3.connect(file, timeout=MIGRATION_SECONDS)) as connection:
        try:
            names = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
            held = [name for name in ("experiments", "registered_models") if name in names]
            is_foreign = bool(names) and "experiments" not in names and "alembic_version" not in names
            return is_foreign or any(connection.execute(f"select 1 from {name} limit 1").fetchone() for name in held)
        except sqlite3.DatabaseError:  # no database: MLflow says so
            return True


def set_account_password(database: str, user: str, password: str) -> None:
    """Set the password of an account in MLflow's database of accounts, without a server; nothing if there is none."""
    from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore()
    store.init_db(database)
    try:
        if store.has_user(user):
            store.update_user(user, password=password)
    finally:
        store.engine.dispose()
