"""Databases whose tables are made already: Prefect's migrations take six seconds of processor time, MLflow's two, and a
copy takes none.

Each is made once for all processes of a test session. What a first start in an empty home does is still seen by the
tests that begin with an empty one.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tasks.ports.tracking.migrations import create_mlflow_tables, file_of, is_in_use

SHARED = "LIMBECK_TESTS_DATABASES"
"""Names the folder that a session's processes share; the first of them makes it, those that it starts inherit the
name."""


def folder_of_session() -> Path:
    """Return the folder that all processes of a test session share; a suite that runs without pytest makes one."""
    if SHARED not in os.environ:
        os.environ[SHARED] = tempfile.mkdtemp(prefix="limbeck-tests-")
        atexit.register(leave_nothing, Path(os.environ[SHARED]), os.getpid())
    return Path(os.environ[SHARED])


def leave_nothing(folder: Path, owner: int) -> None:
    """Remove a session's folder at the end of its owner; what that forked meanwhile leaves it alone."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def prepare(home: Path) -> None:
    """Give an empty home both databases."""
    home.mkdir(parents=True, exist_ok=True)
    for name, make in (("prefect.db", migrate_prefect), ("mlflow.db", migrate_mlflow)):
        if is_unused(home / name):
            shutil.copyfile(made_once(name, make), home / name)


def copy_prefect(database: Path) -> bool:
    """Write a Prefect database with its tables to a place where none is; tell whether one was made already. Where not,
    a server makes its own, and gives it by ``keep_prefect``."""
    database.parent.mkdir(parents=True, exist_ok=True)
    made = folder_of_session() / "prefect.db"
    if is_unused(made):
        return False
    shutil.copyfile(made, database)
    return True


def is_unused(database: Path) -> bool:
    """Tell whether nothing was ever written to a database; a home is made with empty files, so that their mode is
    ours."""
    return not database.exists() or not database.stat().st_size


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a database that the first who asks makes."""
    folder = folder_of_session()
    done = folder / name
    with locked(folder / f"{name}.lock"):
        if is_unused(done):  # the folder is the home of tests that have none, too
            make(begun := folder / f"begun-{name}")
            keep(begun, done)
    return done


def keep_prefect(database: Path) -> None:
    """Let later servers begin with the tables that a server has just made."""
    folder = folder_of_session()
    with locked(folder / "prefect.db.lock"):
        if is_unused(folder / "prefect.db"):
            keep(database, folder / "prefect.db")


def keep(database: Path, place: Path) -> None:
    """Copy a database by SQLite itself: the copy has what may still lie in a log beside the file."""
    begun = place.with_name(f"copy-{place.name}")
    with (
        contextlib.closing(sqlite3.connect(database)) as source,
        contextlib.closing(sqlite3.connect(begun)) as copy,
    ):
        source.backup(copy)
    begun.rename(place)


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock of a file, which other processes of the session wait for."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def migrate_prefect(file: Path) -> None:
    """Make Prefect's tables as its server does."""
    own = {
        "PREFECT_HOME": str(file.parent / "prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{file}",
    }
    known = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [sys.executable, "-P", "-m", "prefect", "server", "database", "upgrade", "--yes"]
    subprocess.run(command, env=known | own, check=True, capture_output=True)


def migrate_mlflow(file: Path) -> None:
    """Make MLflow's tables as our own tracker does, and what its first request adds to them."""
    from mlflow.tracking import MlflowClient

    create_mlflow_tables(f"sqlite:///{file}")
    MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments(max_results=1)


def copy_mlflow_tables(database: str) -> None:
    """Do for a tracker in the process of a test what ``create_mlflow_tables`` does, by a copy."""
    file = file_of(database)
    if file is not None and not is_in_use(file):
        shutil.copyfile(made_once("mlflow.db", migrate_mlflow), file)
