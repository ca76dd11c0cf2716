"""Secrets are rotated whole: every program that checks one gets the new one, the old one opens nothing, and a rotation
that was interrupted is completed by the next."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.home import Home
from flows.stack import bringup, credentials, databases, supervision
from flows.stack.credentials import PERSON
from flows.stack.operation import rotation
from flows.stack.operation.rotation import chosen_secrets, rotate_secrets, set_passwords
from flows.stack.services import mlflow_database
from flows.stack.settings import Settings, Stack
from flows.stack.setup.folders import lay_out
from flows.stack.setup.ports import HeldPorts
from tasks.errors import StackError
from tests.flows.stack.running import Running
from tests.web_server import free_port


@pytest.fixture
def home(tmp_path: Path) -> Home:
    stack = Stack(tmp_path / "stack", Settings(s3="folder", pools=()))
    stack.root.mkdir()
    stack.save()
    credentials.generate(stack.secrets_file)
    return Home(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the steps around the passwords; starting a stack is tried below, and costs minutes."""
    made: list[str] = []
    monkeypatch.setattr(bringup, "down", lambda home, tell: made.append("down"))
    monkeypatch.setattr(bringup, "up", lambda home, wanted, tell: made.append("up"))
    monkeypatch.setattr(rotation, "set_passwords", lambda stack, old, new, tell: made.append("passwords"))
    return made


def test_what_cannot_be_rotated_is_refused_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="what Prefect has encrypted with it would be lost"):
        chosen_secrets(["LIMBECK_PREFECT_ENCRYPTION_KEY"])
    with pytest.raises(StackError, match="there is no secret PASSWORD; known are: LIMBECK_POSTGRES_PASSWORD"):
        chosen_secrets(["PASSWORD"])
    with pytest.raises(StackError, match="has no stack"):
        rotate_secrets(Home(tmp_path), [], print)
    assert len(chosen_secrets([])) == len(credentials.SECRETS) - len(rotation.FIXED)


def test_the_named_ones_are_new_and_the_others_stay(home: Home, calls: list[str]) -> None:
    file = Stack.of(home).secrets_file
    before = credentials.kept(file)
    said = rotate_secrets(home, ["LIMBECK_METRICS_PASSWORD"], print)
    after = credentials.kept(file)
    assert {name for name in before if before[name] != after[name]} == {"LIMBECK_METRICS_PASSWORD"}
    assert said == ["Prometheus needs the new LIMBECK_METRICS_PASSWORD"]
    assert calls == ["down", "passwords", "up"] and stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_interrupted_one_is_completed_with_the_same_secrets(
    home: Home, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL may know the new ones already: other new ones would lock everybody out."""
    stack = Stack.of(home)
    before = credentials.kept(stack.secrets_file)

    def die(stack: Stack, old: object, new: object, tell: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(rotation, "set_passwords", die)
        with pytest.raises(KeyboardInterrupt):
            rotate_secrets(home, [], print)
    assert credentials.kept(stack.secrets_file) == before, "the servers' secrets are the old ones still"
    wanted = json.loads(stack.next_secrets_file.read_text())
    assert stat.S_IMODE(stack.next_secrets_file.stat().st_mode) == 0o600
    rotate_secrets(home, ["LIMBECK_REDIS_PASSWORD"], print)
    assert credentials.kept(stack.secrets_file) == wanted and not stack.next_secrets_file.exists()


def test_up_does_not_start_between_old_and_new_secrets(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack.of(home)
    credentials.write(stack.next_secrets_file, credentials.kept(stack.secrets_file))
    for step in ("require_programs", "lay_out"):
        monkeypatch.setattr(bringup, step, lambda *given: None)
    monkeypatch.setattr(bringup, "choose", lambda home, wanted, held, tls: stack)
    with pytest.raises(StackError, match="a rotation of secrets was interrupted; complete it: limbeck rotate"):
        bringup.up(home, {}, print)


# --- with real servers ------------------------------------------------------------------------------------------------


@pytest.fixture
def with_postgres() -> Iterator[Stack]:
    """A stack of which PostgreSQL alone runs, with MLflow's accounts in it."""
    shown = {"prefect": free_port(), "mlflow": free_port()}
    running = Running()  # its home is one that PostgreSQL's user can walk into
    with HeldPorts() as held:
        ports = held.choose("127.0.0.1", shown)
    stack = Stack(running.home.root / "stack", Settings(s3="folder", pools=(), ports=ports))
    stack.root.mkdir(mode=0o711, parents=True)
    stack.save()
    lay_out(stack)
    secret = credentials.generate(stack.secrets_file)
    try:
        bringup.write_configs(stack, secret)
        supervision.start_supervisor(stack)
        databases.initialise(stack, secret)
        bringup.start(stack, "postgres", lambda: databases.answers(stack, secret), print)
        databases.create(stack, secret)
        databases.make_monitor(stack, secret)
        yield stack
    finally:
        bringup.down(running.home, print)
        running.remove()


def login(stack: Stack, role: str, password: str, database: str) -> bool:
    import psycopg2

    port = stack.settings.ports["postgres"]
    try:
        psycopg2.connect(host="127.0.0.1", port=port, user=role, password=password, dbname=database).close()
    except psycopg2.OperationalError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_postgresql_and_mlflow_know_the_new_passwords_alone_even_when_told_twice(with_postgres: Stack) -> None:
    from mlflow.server.auth.sqlalchemy_store import SqlAlchemyStore

    stack = with_postgres
    old = credentials.load(stack.secrets_file)
    url = mlflow_database(stack, "mlflow_auth")
    accounts = SqlAlchemyStore()
    accounts.init_db(url.replace("mlflow@", f"mlflow:{old['LIMBECK_MLFLOW_DB_PASSWORD']}@"))
    accounts.create_user(PERSON, old["LIMBECK_MLFLOW_PASSWORD"], is_admin=True)
    accounts.engine.dispose()
    new = old | {name: credentials.SECRETS[name]() for name in chosen_secrets([])}
    for _ in range(2):  # the second as after a kill: PostgreSQL's own password is the new one by then
        set_passwords(stack, old, new, print)
    roles = {"postgres": "POSTGRES", "prefect": "PREFECT_DB", "mlflow": "MLFLOW_DB", "limbeck_monitor": "METRICS_DB"}
    for role, name in roles.items():
        database = role if role in ("prefect", "mlflow") else "postgres"
        assert login(stack, role, new[f"LIMBECK_{name}_PASSWORD"], database), role
        assert not login(stack, role, old[f"LIMBECK_{name}_PASSWORD"], database), role
    assert not login(stack, "prefect", new["LIMBECK_PREFECT_DB_PASSWORD"], "mlflow"), "users are apart"
    again = SqlAlchemyStore()
    again.init_db(url.replace("mlflow@", f"mlflow:{new['LIMBECK_MLFLOW_DB_PASSWORD']}@"))
    assert again.authenticate_user(PERSON, new["LIMBECK_MLFLOW_PASSWORD"])
    assert not again.authenticate_user(PERSON, old["LIMBECK_MLFLOW_PASSWORD"])
    again.engine.dispose()
