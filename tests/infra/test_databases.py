"""The databases of the cloud's servers on a real PostgreSQL, by an administrator who is no superuser, as on RDS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg2
import pytest

from flows.deploy.timetable import timetable
from flows.servers.databases import DATABASE_OWNERS, PASSWORD_SETTINGS, create_databases, require_settings
from tasks.errors import StackError
from tests import postgres

pytestmark = pytest.mark.skipif(not postgres.is_here(), reason=postgres.WHY_NOT)


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """A server with an administrator who may create roles and databases, and nothing else."""
    with postgres.postgres_server() as address:
        found = urlsplit(address)
        place = {"PGHOST": str(found.hostname), "PGPORT": str(found.port)}
        owner = psycopg2.connect(host=found.hostname, port=found.port, user=found.username, dbname="postgres")
        owner.autocommit = True
        owner.cursor().execute("CREATE ROLE administrator LOGIN CREATEROLE CREATEDB PASSWORD 'admin'")
        owner.close()
        words = {PASSWORD_SETTINGS["prefect"]: "p'1", PASSWORD_SETTINGS["mlflow"]: "m"}
        yield place | words | {"PGUSER": "administrator", "PGPASSWORD": "admin"}


@pytest.fixture
def settings(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return server


def asked(settings: dict[str, str], user: str, database: str, question: str) -> list[tuple[str, ...]]:
    """Return the answer of a database to one of its users."""
    with psycopg2.connect(host=settings["PGHOST"], port=settings["PGPORT"], user=user, dbname=database) as connection:
        cursor = connection.cursor()
        cursor.execute(question)
        found: list[tuple[str, ...]] = cursor.fetchall()
    return found


def stored(settings: dict[str, str], role: str) -> str:
    """Return the stored form of a role's password."""
    ((word,),) = asked(settings, "limbeck", "postgres", f"SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'")
    return word


def test_each_server_owns_its_databases_and_opens_no_other(settings: dict[str, str]) -> None:
    create_databases(settings)
    owners = asked(settings, "limbeck", "postgres", "SELECT datname, pg_get_userbyid(datdba) FROM pg_database")
    assert {name: owner for name, owner in owners if name in DATABASE_OWNERS} == DATABASE_OWNERS
    for database, owner in DATABASE_OWNERS.items():
        asked(settings, owner, database, "SELECT 1")
        with pytest.raises(psycopg2.OperationalError, match="permission denied"):
            asked(settings, {"prefect": "mlflow", "mlflow": "prefect"}[owner], database, "SELECT 1")
    ours = "rolname = ANY('{prefect,mlflow}')"
    rights = f"SELECT rolname FROM pg_roles WHERE (rolsuper OR rolcreatedb OR rolcreaterole) AND {ours}"
    assert asked(settings, "limbeck", "postgres", rights) == []


def test_a_second_time_changes_passwords_alone(settings: dict[str, str]) -> None:
    create_databases(settings)
    before = stored(settings, "prefect"), stored(settings, "mlflow")
    create_databases(settings | {PASSWORD_SETTINGS["prefect"]: "rotated"})
    assert stored(settings, "prefect") != before[0]


def test_what_is_missing_or_refused_is_one_sentence(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StackError, match="PGPASSWORD, LIMBECK_PREFECT_DB_PASSWORD not set; set PostgreSQL's address"):
        require_settings(settings | {"PGPASSWORD": "", PASSWORD_SETTINGS["prefect"]: ""})
    monkeypatch.setenv("PGPORT", "1")
    done = subprocess.run([sys.executable, "-m", "flows.servers.databases"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("limbeck: PostgreSQL at 127.0.0.1 refused: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_migration_makes_every_schema(settings: dict[str, str]) -> None:
    command = [sys.executable, "-m", "flows.servers.databases"]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | settings)
        assert done.returncode == 0 and done.stdout.endswith("the databases are ready\n"), done.stderr[-2000:]
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    expected = {"prefect": "flow_run", "mlflow": "runs", "mlflow_auth": "users"}
    for database, table in expected.items():
        assert (table,) in asked(settings, DATABASE_OWNERS[database], database, tables)


def test_forms_keep_the_order_of_their_fields_in_jsonb(settings: dict[str, str]) -> None:
    """Prefect keeps the schemas of forms as JSONB, which sorts keys by their length; its pages sort by position."""
    moved = 0
    with psycopg2.connect(
        host=settings["PGHOST"], port=settings["PGPORT"], user="limbeck", dbname="postgres"
    ) as connection:
        for entry in timetable():
            given: Any = entry.fields["parameter_openapi_schema"]
            cursor = connection.cursor()
            cursor.execute("SELECT %s::jsonb", [json.dumps(given)])
            ((stored,),) = cursor.fetchall()
            assert stored == given
            for known, back in zip(sections_of(given), sections_of(stored), strict=True):
                assert sorted(back, key=lambda name: back[name]["position"]) == list(known), entry.full_name
                moved += list(back) != list(known)
    assert moved > 10, "this PostgreSQL keeps an order that others do not"


def sections_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a form and of its sections, sorted by the names of the sections."""
    sections = [schema, *(section for _, section in sorted(schema.get("definitions", {}).items()))]
    return [section.get("properties", {}) for section in sections]
