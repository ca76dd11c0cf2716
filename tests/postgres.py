"""A real PostgreSQL for the tests, on 127.0.0.1: made and started in a second or two, as a user without rights, for
PostgreSQL refuses root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.web_server import free_port

PROGRAMS = ("postgres", "initdb")
WHY_NOT = "NO PostgreSQL HERE: promotion was not raced on it (install Debian's package postgresql)"


def programs() -> dict[str, str]:
    """Return where PostgreSQL's programs are; Debian keeps them off the path."""
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, places)])
    found = {name: shutil.which(name, path=path) for name in PROGRAMS}
    return {name: place for name, place in found.items() if place}


def is_here() -> bool:
    """Tell whether this machine can run one."""
    return len(programs()) == len(PROGRAMS)


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server with an empty database; yield MLflow's address of it."""
    folder, port = Path(tempfile.mkdtemp(prefix="limbeck-postgres-", dir="/tmp")), free_port()
    given = as_nobody(folder)
    try:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "cwd": folder, **given}
        made = subprocess.run(
            [
                programs()["initdb"],
                "-D",
                str(folder / "data"),
                "-U",
                "limbeck",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
            **quiet,
        )
        assert made.returncode == 0, made.stderr.decode()[-2000:]
        settings = [
            f"port={port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={folder}",
            "fsync=off",
            "full_page_writes=off",
            "synchronous_commit=off",
            "max_connections=200",
        ]
        command = [
            programs()["postgres"],
            "-D",
            str(folder / "data"),
            *(word for setting in settings for word in ("-c", setting)),
        ]
        server = subprocess.Popen(command, start_new_session=True, **{**quiet, "stderr": subprocess.DEVNULL})
        try:
            wait_for(port)
            yield f"postgresql+psycopg2://limbeck@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown: connections are cut
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_nobody(folder: Path) -> dict[str, Any]:
    """Return how a process is started without rights: as ourselves, unless we are root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def wait_for(port: int) -> None:
    """Wait until the server answers."""
    import psycopg2

    until = time.monotonic() + 60
    while True:
        try:
            psycopg2.connect(host="127.0.0.1", port=port, user="limbeck", dbname="postgres").close()
            return
        except psycopg2.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
