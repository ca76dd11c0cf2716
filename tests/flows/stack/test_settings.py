"""What the stack is made of, without starting it: secrets, ports, command lines, configuration, and one clear sentence
where something is wrong."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from flows.cli.team_servers import exports
from flows.home import Home
from flows.run.environment import stack_environment
from flows.servers.worker_tokens import WorkerTokens, read_tokens, token_digest
from flows.stack import bringup, configs, credentials, programs
from flows.stack.people import machines
from flows.stack.services import client_environment, environment_of, services
from flows.stack.settings import Settings, Stack
from flows.stack.setup.choice import choose
from flows.stack.setup.ports import HeldPorts
from tasks.errors import StackError


@pytest.fixture(autouse=True)
def every_program_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is examined here does not depend on what is installed here, and on who runs the tests."""
    programs.find.cache_clear()
    monkeypatch.setattr("flows.stack.setup.choice.choose_worker_user", lambda settings, wanted: "")
    monkeypatch.setattr("flows.stack.services.need", lambda program: f"/usr/bin/{program}")
    for name in credentials.SECRETS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(tmp_path / "stack", Settings(s3="radosgw"))


@pytest.fixture
def secret(tmp_path: Path) -> dict[str, str]:
    return credentials.generate(tmp_path / "secrets.json")


def test_secrets_are_generated_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    first = credentials.generate(file)
    assert set(first) == set(credentials.SECRETS) and all(len(value) >= 16 for value in first.values())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert credentials.generate(file) == first and len(set(first.values())) == len(first)


def test_the_encryption_key_is_one() -> None:
    from cryptography.fernet import Fernet

    assert Fernet(credentials.fernet_key()).encrypt(b"it")


def test_a_secret_in_the_environment_wins_and_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_REDIS_PASSWORD", "from-the-secret-store")
    file = tmp_path / "secrets.json"
    assert credentials.generate(file)["LIMBECK_REDIS_PASSWORD"] == "from-the-secret-store"
    assert "from-the-secret-store" not in file.read_text()


def test_secrets_that_others_can_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    credentials.generate(file)
    file.chmod(0o644)
    with pytest.raises(StackError, match="chmod 600"):
        credentials.load(file)


def test_no_secret_is_on_a_command_line_or_in_the_supervisor_s_file(stack: Stack, secret: dict[str, str]) -> None:
    running = services(stack, secret)
    text = configs.supervisord_conf(stack, running.values()) + configs.nginx_conf(stack) + configs.auth_ini(stack)
    words = " ".join(word for service in running.values() for word in service.command)
    for value in secret.values():
        assert value not in words and value not in text
    assert secret["LIMBECK_REDIS_PASSWORD"] in configs.redis_conf(stack, secret), "and this is how it would look"


def test_everything_listens_on_the_loopback_address(stack: Stack, secret: dict[str, str]) -> None:
    running = services(stack, secret)
    for name in ("api-1", "api-2", "mlflow"):
        assert running[name].command[running[name].command.index("--host") + 1] == "127.0.0.1"
    assert "listen_addresses=127.0.0.1" in running["postgres"].command
    assert "bind 127.0.0.1\n" in configs.redis_conf(stack, secret) and "listen 127.0.0.1:4200;" in configs.nginx_conf(
        stack
    )


def test_what_others_are_told_is_where_they_listen(tmp_path: Path, secret: dict[str, str]) -> None:
    """On another address people's servers move there; databases, Redis and API servers never do."""
    stack = Stack(tmp_path / "stack", Settings(host="10.1.2.3", s3="radosgw", tls="authority"))
    running = services(stack, secret)
    assert "listen 10.1.2.3:4200 ssl;" in configs.nginx_conf(stack) and stack.endpoint == "https://10.1.2.3:17480"
    assert "listen 10.1.2.3:5000 ssl;" in configs.nginx_conf(stack)
    assert running["api-1"].command[running["api-1"].command.index("--host") + 1] == "127.0.0.1"
    assert "listen_addresses=127.0.0.1" in running["postgres"].command


def test_workers_hold_no_key_that_is_not_theirs(
    stack: Stack, secret: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the person who started it")
    monkeypatch.setenv("PREFECT_API_URL", "https://elsewhere/api")
    told = environment_of(stack, services(stack, secret)["worker-cpu"])
    theirs = {
        "LIMBECK_PREFECT_WORKER_TOKEN",
        "LIMBECK_MLFLOW_WORKER_PASSWORD",
        "LIMBECK_S3_STORE_ACCESS_KEY",
        "LIMBECK_S3_STORE_SECRET_KEY",
    }
    for name in set(credentials.SECRETS) - theirs:
        assert not any(secret[name] in value for value in told.values()), name
    assert (
        told["PREFECT_API_URL"] == "http://127.0.0.1:4200/api"
        and told["AWS_SECRET_ACCESS_KEY"] == secret["LIMBECK_S3_STORE_SECRET_KEY"]
    )
    assert told["MLFLOW_TRACKING_USERNAME"] == "limbeck-worker"


def test_without_nginx_clients_ask_one_api_server(tmp_path: Path, secret: dict[str, str]) -> None:
    running = services(Stack(tmp_path / "stack", Settings(proxy=False)), secret)
    assert "api-2" not in running and "proxy" not in running and "4200" in running["api-1"].command


def test_a_stack_without_s3_keeps_folders(tmp_path: Path, secret: dict[str, str]) -> None:
    stack = Stack(tmp_path / "stack", Settings(s3="folder"))
    assert "radosgw" not in services(stack, secret)
    assert client_environment(stack, secret)["LIMBECK_STORE"] == str(tmp_path / "stack" / "data" / "store")
    assert not any(name.startswith("AWS_") for name in client_environment(stack, secret))


def test_a_path_with_a_percent_sign_or_a_blank_is_taken_as_it_is(
    tmp_path: Path, secret: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from supervisor.options import ServerOptions

    stack = Stack(tmp_path / "50 %s of it" / "stack", Settings(s3="radosgw"))
    for folder in (stack.run, stack.logs):
        folder.mkdir(parents=True)
    monkeypatch.chdir(stack.root)
    (stack.run / "supervisord.conf").write_text(configs.supervisord_conf(stack, services(stack, secret).values()))
    options = ServerOptions()
    options.realize(["-c", str(stack.run / "supervisord.conf")], doc="")
    assert [group.name for group in options.process_group_configs] == sorted(services(stack, secret))
    logs = [group.process_configs[0].stdout_logfile for group in options.process_group_configs]
    assert logs == [f"logs/{name}.log" for name in sorted(services(stack, secret))], (
        "relative to the stack's folder, where the supervisor stands"
    )
    for group in options.process_group_configs:
        one = group.process_configs[0]
        assert one.redirect_stderr and 0 < one.stdout_logfile_maxbytes * (1 + one.stdout_logfile_backups) <= 3e7 * 1.05


def test_prefect_forgets_old_runs_after_the_days_that_a_person_gives(
    stack: Stack, secret: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    from prefect.settings import Settings as PrefectSettings

    monkeypatch.setenv("LIMBECK_RUN_DAYS", "7")
    for name, value in services(stack, secret)["services"].environment.items():
        monkeypatch.setenv(name, value)
    vacuum = PrefectSettings().server.services.db_vacuum
    assert vacuum.enabled_vacuum_types == {"events", "flow_runs", "orphans"}
    assert vacuum.retention_period == timedelta(days=7)
    monkeypatch.setenv("LIMBECK_RUN_DAYS", "never")
    with pytest.raises(StackError, match="'never' is no number of days"):
        services(stack, secret)


def test_what_makes_many_workers_cheap_is_what_prefect_reads(
    stack: Stack, secret: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import Settings as PrefectSettings
    from prefect_redis.messaging import RedisMessagingConsumerSettings

    for name in ("api-1", "api-2", "services"):
        with monkeypatch.context() as process:
            for variable, value in services(stack, secret)[name].environment.items():
                process.setenv(variable, value)
            pool = PrefectSettings().server.database.sqlalchemy
            assert pool.pool_size == 20
            assert pool.connect_args.statement_cache_size == pool.connect_args.prepared_statement_cache_size == 500
            assert RedisMessagingConsumerSettings().block.total_seconds() == 15


def test_workers_ask_for_work_as_often_as_a_person_says(
    stack: Stack, secret: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import Settings as PrefectSettings

    for given, seconds in (("", 2), ("15", 15), ("0.5", 0.5)):
        monkeypatch.setenv("LIMBECK_POLL_SECONDS", given)
        told = services(stack, secret)["worker-cpu"].environment
        monkeypatch.setenv("PREFECT_WORKER_QUERY_SECONDS", told["PREFECT_WORKER_QUERY_SECONDS"])
        assert PrefectSettings().worker.query_seconds == seconds
    for given in ("0", "often", "601", "-2", "1e2"):
        monkeypatch.setenv("LIMBECK_POLL_SECONDS", given)
        with pytest.raises(StackError, match=f"LIMBECK_POLL_SECONDS is '{given}'; set it to the seconds"):
            services(stack, secret)


def test_settings_are_kept(stack: Stack, tmp_path: Path) -> None:
    stack.root.mkdir()
    stack.save()
    assert Stack.of(Home(tmp_path)) == stack
    stack.file.write_text("{")
    with pytest.raises(StackError, match="cannot be read"):
        Stack.of(Home(tmp_path))


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"host": "0.0.0.0"}, "is not an address"),
        ({"host": "10.1.2.3"}, "without TLS would send passwords over the network unencrypted.*--local-authority"),
        ({"s3": "minio"}, "radosgw, folder, aws, or the URL"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    wanted: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(StackError, match=sentence):
        choose(Home(tmp_path), {"prefect_port": 24200, "mlflow_port": 25000, **wanted}, HeldPorts())
    assert not (tmp_path / "stack").exists()


def test_what_was_chosen_stays(stack: Stack, tmp_path: Path) -> None:
    stack.root.mkdir()
    stack.save()
    with pytest.raises(StackError, match="chosen at its first start"):
        choose(Home(tmp_path), {"s3": "folder"}, HeldPorts())
    with HeldPorts() as held:
        assert choose(Home(tmp_path), {"pools": ("cpu",)}, held).settings.pools == ("cpu",)
    assert json.loads(stack.file.read_text())["pools"] == ["cpu"]


def test_a_missing_program_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find", lambda program: None)
    with pytest.raises(
        StackError,
        match="PostgreSQL and Redis are not installed; install with: .*apt-get install .*postgresql redis-server",
    ):
        bringup.require_programs()
    with pytest.raises(StackError, match="radosgw was not found.*apt-get install .*radosgw"):
        programs.need("radosgw")


def test_the_newest_postgresql_is_taken() -> None:
    places = [Path("/usr/lib/postgresql/9/bin"), Path("/usr/lib/postgresql/15/bin")]
    assert max(places, key=programs.by_version_number) == places[1]


def test_a_home_with_a_long_path_has_its_sockets_elsewhere(tmp_path: Path) -> None:
    near, far = (
        Stack(Path("/srv/limbeck/stack")),
        Stack(tmp_path / "a-name-that-is-rather-long" / "and-another-one-below-it" / "stack"),
    )
    assert near.supervisor_socket == Path("/srv/limbeck/stack/run/supervisor.sock")
    assert len(str(far.supervisor_socket)) < 60 and far.supervisor_socket != Stack(tmp_path / "stack").supervisor_socket
    assert far.temporary.parent == far.supervisor_socket.parent


def test_env_is_for_shells(stack: Stack, tmp_path: Path) -> None:
    import subprocess

    home = Home(tmp_path)
    with pytest.raises(StackError, match="limbeck up"):
        exports(home)
    stack.root.mkdir()
    stack.save()
    secret = credentials.generate(stack.secrets_file)
    said = subprocess.run(
        ["sh", "-c", exports(home) + "\nenv"], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    ).stdout
    assert (
        f"MLFLOW_TRACKING_PASSWORD={secret['LIMBECK_MLFLOW_PASSWORD']}\n" in said
        and "LIMBECK_STORE=s3://limbeck-store\n" in said
    )


def test_a_home_whose_stack_is_down_uses_none_of_it(stack: Stack, tmp_path: Path) -> None:
    stack.root.mkdir()
    stack.save()
    assert stack_environment(Home(tmp_path)) == {}


def test_a_removal_that_mlflow_did_not_hear_of_is_repeated(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_away(stack: Stack) -> list[tuple[str, bool]]:
        raise StackError("MLflow is away")

    stack.worker_tokens.parent.mkdir(parents=True)
    machines.write_tokens(stack, {"box": token_digest("token"), "other": token_digest("its own")})
    monkeypatch.setattr(machines, "list_users", is_away)
    with pytest.raises(StackError, match="away"):
        machines.remove_machine(stack, "box")
    tokens = WorkerTokens("limbeck:password", "", stack.worker_tokens)
    assert not tokens.accepts("box:token") and not tokens.accepts("box:") and tokens.accepts("other:its own")

    removed: list[str] = []
    monkeypatch.setattr(machines, "list_users", lambda stack: [("box", False)])
    monkeypatch.setattr(machines, "remove_user", lambda stack, name: removed.append(name))
    machines.remove_machine(stack, "box")
    assert removed == ["box"] and set(read_tokens(stack.worker_tokens)) == {"other"}
    with pytest.raises(StackError, match="there is no worker box; known are: other"):
        machines.remove_machine(stack, "box")
