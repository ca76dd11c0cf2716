"""PostgreSQL: one cluster with three databases; Prefect and MLflow have a role each and cannot open the other's
databases. Migrations are a separate step."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from flows.stack.credentials import MONITOR
from flows.stack.programs import ProcessOwner, need, owner
from flows.stack.services import environment_of, mlflow_database, python, services
from flows.stack.settings import Stack
from tasks.errors import StackError

OWNERS = {"prefect": "prefect", "mlflow": "mlflow", "mlflow_auth": "mlflow"}
"""Each database and the role that owns it."""
MIGRATES = 600.0  # seconds for one migration; a large database takes long


def initialise(stack: Stack, secret: Mapping[str, str]) -> None:
    """Create the cluster if there is none; an unfinished one is created again."""
    folder = stack.data / "postgres"
    if (folder / "cluster").exists():
        return
    unfinished, word = folder / "unfinished", folder / "password"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with os.fdopen(os.open(word, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            stream.write(secret["LIMBECK_POSTGRES_PASSWORD"] + "\n")
        if user := owner("postgres"):
            os.chown(word, user.pw_uid, user.pw_gid)
        what = [
            "-D",
            str(unfinished),
            "-U",
            "postgres",
            "-A",
            "scram-sha-256",
            f"--pwfile={word}",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--data-checksums",
        ]
        done = subprocess.run(
            [need("initdb"), *what], capture_output=True, text=True, cwd=folder, **as_owner("postgres")
        )
    finally:
        word.unlink(missing_ok=True)
    if done.returncode:
        raise StackError(f"PostgreSQL's database could not be created: {done.stderr.strip()[-400:]}")
    unfinished.rename(folder / "cluster")


def as_owner(key: str) -> ProcessOwner:
    """Return arguments of ``subprocess.run`` that start a program as its package's user; none without root rights."""
    user = owner(key)
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def sql(stack: Stack, secret: Mapping[str, str], statements: str, database: str = "postgres") -> str:
    """Run statements as the superuser and return their output."""
    command = [
        need("psql"),
        *address(stack, "postgres"),
        "-d",
        database,
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
    ]
    told = os.environ | {"PGPASSWORD": secret["LIMBECK_POSTGRES_PASSWORD"], "PGCONNECT_TIMEOUT": "5"}
    done = subprocess.run(command, input=statements, env=told, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise StackError(f"PostgreSQL refused: {done.stderr.strip()[-300:]}; its log is {stack.logs / 'postgres.log'}")
    return done.stdout.strip()


def address(stack: Stack, user: str) -> list[str]:
    """Return the arguments that connect PostgreSQL's programs to the server."""
    return ["-h", "127.0.0.1", "-p", str(stack.settings.ports["postgres"]), "-U", user, "-w"]


def answers(stack: Stack, secret: Mapping[str, str]) -> bool:
    """Return whether PostgreSQL answers."""
    try:
        return sql(stack, secret, "SELECT 1") == "1"
    except (StackError, subprocess.TimeoutExpired):
        return False


def create(stack: Stack, secret: Mapping[str, str]) -> None:
    """Create missing roles and databases, and set the password of every role."""
    there = set(sql(stack, secret, "SELECT rolname FROM pg_roles UNION SELECT datname FROM pg_database").splitlines())
    for role in dict.fromkeys(OWNERS.values()):
        word = secret[f"LIMBECK_{role.upper()}_DB_PASSWORD"].replace("'", "''")
        sql(stack, secret, f"{'ALTER' if role in there else 'CREATE'} ROLE {role} LOGIN PASSWORD '{word}'")
    databases = set(sql(stack, secret, "SELECT datname FROM pg_database").splitlines())
    for database, role in OWNERS.items():
        if database not in databases:
            sql(stack, secret, f"CREATE DATABASE {database} OWNER {role}")
        sql(stack, secret, f"REVOKE ALL ON DATABASE {database} FROM PUBLIC")


def make_monitor(stack: Stack, secret: Mapping[str, str]) -> None:
    """Create the role of the exporter of metrics, which sees figures of the server and no row of a database."""
    word = secret["LIMBECK_METRICS_DB_PASSWORD"].replace("'", "''")
    there = sql(stack, secret, f"SELECT 1 FROM pg_roles WHERE rolname = '{MONITOR}'")
    sql(stack, secret, f"{'ALTER' if there else 'CREATE'} ROLE {MONITOR} LOGIN CONNECTION LIMIT 3 PASSWORD '{word}'")
    sql(stack, secret, f"GRANT pg_monitor TO {MONITOR}")


def versions() -> dict[str, str]:
    """Return the installed versions of the packages whose databases are migrated."""
    return {name: version(name) for name in ("prefect", "mlflow")}


def migrate(stack: Stack, secret: Mapping[str, str]) -> None:
    """Migrate all three databases to the schema of the installed versions, in parallel."""
    running = services(stack, secret)
    auth = python("mlflow.server.auth", "db", "upgrade", "--url", mlflow_database(stack, "mlflow_auth"))
    steps = [
        (
            "prefect",
            python("prefect", "server", "database", "upgrade", "-y"),
            environment_of(stack, running["services"]),
        ),
        ("mlflow", python("mlflow", "db", "upgrade", mlflow_database(stack)), environment_of(stack, running["mlflow"])),
        ("mlflow_auth", auth, environment_of(stack, running["mlflow"])),
    ]
    with ThreadPoolExecutor(len(steps)) as pool:
        for done in [
            pool.submit(migrate_one, stack.logs / f"migrate-{name}.log", command, told) for name, command, told in steps
        ]:
            done.result()


def migrate_one(log: Path, command: list[str], told: Mapping[str, str]) -> None:
    """Run one migration and log its output; raise StackError if it fails."""
    with log.open("wb") as stream:
        done = subprocess.run(command, stdout=stream, stderr=stream, env=dict(told), cwd=log.parent, timeout=MIGRATES)
    if done.returncode:
        raise StackError(f"the database could not be migrated; the log is {log}")
