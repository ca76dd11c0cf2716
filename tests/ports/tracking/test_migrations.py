"""MLflow's tables in a new home: all or none, whenever the process that creates them is killed."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.errors import RegistryError
from tasks.ports.tracking.migrations import is_in_use
from tasks.ports.tracking.tracker import Tracker
from tests.prefect_server import ROOT

EARLY = "acf3f17fdcc7"
"""A revision of MLflow's tables after which a killed run was seen to leave a home."""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The empty file with which a home begins."""
    (tmp_path / "mlflow.db").touch(mode=0o600)
    return tmp_path / "mlflow.db"


def leave_half_migrated(database: Path) -> None:
    """Leave a database as MLflow does whose process is killed inside the next migration."""
    from alembic import command
    from mlflow.store.db.utils import _get_alembic_config
    from mlflow.store.tracking.dbmodels.initial_models import Base as InitialBase
    from sqlalchemy import create_engine

    engine = create_engine(f"sqlite:///{database}")
    InitialBase.metadata.create_all(engine)
    engine.dispose()
    command.upgrade(_get_alembic_config(f"sqlite:///{database}"), EARLY)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("create table trace_info (request_id text)")


def test_a_process_that_is_killed_while_it_creates_the_tables_leaves_a_home_that_works(database: Path) -> None:
    code = f"from tasks.ports.tracking.tracker import Tracker; Tracker('sqlite:///{database}', None).runs(1)"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    scratch = database.with_name(".mlflow.db.new")
    while process.poll() is None and not (scratch.exists() and scratch.stat().st_size > 20_000):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and not database.stat().st_size
    assert Tracker(f"sqlite:///{database}", None).runs(1) == []
    assert [path.name for path in database.parent.iterdir() if path.name.startswith(".mlflow.db.new")] == []
    assert database.stat().st_mode & 0o777 == 0o600


def test_what_a_killed_run_of_an_older_release_left_is_made_anew(database: Path) -> None:
    leave_half_migrated(database)
    assert Tracker(f"sqlite:///{database}", None).runs(1) == []


def test_a_database_that_holds_something_is_never_replaced(database: Path) -> None:
    leave_half_migrated(database)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("insert into experiments (experiment_id, name) values (1, 'mine')")
        connection.commit()
    with pytest.raises(RegistryError, match="could not list the runs: .*already exists"):
        Tracker(f"sqlite:///{database}", None).runs(1)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("select name from experiments").fetchall() == [("mine",)]


@pytest.mark.parametrize("foreign", [b"no database at all, but somebody's file", None], ids=["no database", "foreign"])
def test_a_file_of_somebody_else_is_left_alone(database: Path, foreign: bytes | None) -> None:
    if foreign is not None:
        database.write_bytes(foreign)
    else:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("create table theirs (name text)")
    assert is_in_use(database)
