"""The databases of Prefect and MLflow on a PostgreSQL server elsewhere, created and migrated:
``python -m flows.servers.databases``.

Each server has a role of its own, which owns its databases and can open no other. The administrator, whom no server
knows, creates missing roles and databases and sets the roles' passwords; so a second run after a new password in the
secret store completes its rotation. Then each role migrates its own databases to the installed versions. It is run
before servers of another version start, never while servers run.

Settings: PGHOST, PGPORT, PGUSER, PGPASSWORD and PGSSLMODE of the administrator, LIMBECK_PREFECT_DB_PASSWORD and
LIMBECK_MLFLOW_DB_PASSWORD.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tasks.errors import LimbeckError, StackError

DATABASE_OWNERS = {"prefect": "prefect", "mlflow": "mlflow", "mlflow_auth": "mlflow"}
"""Each database and the role that owns it."""
PASSWORD_SETTINGS = {"prefect": "LIMBECK_PREFECT_DB_PASSWORD", "mlflow": "LIMBECK_MLFLOW_DB_PASSWORD"}
REQUIRED_SETTINGS = ("PGHOST", "PGUSER", "PGPASSWORD", *PASSWORD_SETTINGS.values())
MIGRATION_SECONDS = 1800.0  # seconds for one migration; a large database takes long


def require_settings(given: Mapping[str, str]) -> None:
    """Raise StackError if a setting is missing."""
    missing = [name for name in REQUIRED_SETTINGS if not given.get(name)]
    if missing:
        raise StackError(
            f"{', '.join(missing)} not set; set PostgreSQL's address, its administrator and the passwords of both roles"
        )


def create_databases(given: Mapping[str, str]) -> None:
    """Create missing roles and databases, and set the roles' passwords; raise StackError if PostgreSQL refuses."""
    import psycopg2

    try:
        # The administrator's settings are read from the environment by PostgreSQL's own library.
        connection = psycopg2.connect(dbname="postgres", connect_timeout=30)
        connection.autocommit = True
        with connection.cursor() as cursor:
            for role, password in PASSWORD_SETTINGS.items():
                set_role(cursor, role, given[password])
            for database, role in DATABASE_OWNERS.items():
                set_database(cursor, database, role)
        connection.close()
    except psycopg2.Error as error:
        said = " ".join(str(error).split())
        raise StackError(f"PostgreSQL at {given['PGHOST']} refused: {said}") from error


def set_role(cursor: Any, role: str, password: str) -> None:
    """Create a role or change its password; the administrator becomes a member, to create databases for it."""
    from psycopg2 import sql

    cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
    verb = sql.SQL("CREATE" if cursor.fetchone() is None else "ALTER")
    cursor.execute(sql.SQL("{} ROLE {} LOGIN PASSWORD %s").format(verb, sql.Identifier(role)), (password,))
    cursor.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))


def set_database(cursor: Any, database: str, role: str) -> None:
    """Create a database if it is missing, and close it to every other role."""
    from psycopg2 import sql

    cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,))
    if cursor.fetchone() is None:
        cursor.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(database), sql.Identifier(role)))
    cursor.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(database)))


def migrations(given: Mapping[str, str]) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return the command and the environment of each migration, by its database."""
    place = f"{given['PGHOST']}:{given.get('PGPORT', '5432')}"
    python = [sys.executable, "-P", "-m"]
    shared = {
        name: value
        for name, value in given.items()
        if name not in ("PGUSER", "PGPASSWORD", *PASSWORD_SETTINGS.values())
    }
    as_prefect = shared | {
        "PGPASSWORD": given[PASSWORD_SETTINGS["prefect"]],
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://prefect@{place}/prefect",
    }
    as_mlflow = shared | {"PGPASSWORD": given[PASSWORD_SETTINGS["mlflow"]]}
    auth = ["mlflow.server.auth", "db", "upgrade", "--url", f"postgresql://mlflow@{place}/mlflow_auth"]
    return {
        "prefect": ([*python, "prefect", "server", "database", "upgrade", "-y"], as_prefect),
        "mlflow": ([*python, "mlflow", "db", "upgrade", f"postgresql://mlflow@{place}/mlflow"], as_mlflow),
        "mlflow_auth": ([*python, *auth], as_mlflow),
    }


def migrate_databases(given: Mapping[str, str]) -> None:
    """Migrate all databases, one after another; raise StackError at the first that fails."""
    for database, (command, environment) in migrations(given).items():
        print(f"migrating {database}", flush=True)
        done = subprocess.run(command, env=environment, timeout=MIGRATION_SECONDS)
        if done.returncode:
            raise StackError(f"the database {database} could not be migrated; the reason is above")


def main() -> int:
    """Create and migrate the databases; report a failure in one sentence."""
    try:
        require_settings(os.environ)
        create_databases(os.environ)
        migrate_databases(os.environ)
    except LimbeckError as error:
        print(f"limbeck: {error}", file=sys.stderr)
        return 1
    print("the databases are ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
