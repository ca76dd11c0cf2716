"""Values of Prefect's charts and KServe's manifest: no secret in a file, versions of the lock, a pool that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deployments.pools.generate import POOLS
from tests.infra.fake_kubernetes import VERSIONS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "infra" / "kubernetes"
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))
SECRET = re.compile(r"password|authstring|apikey|connection.?string|token", re.IGNORECASE)


def values_of(name: str) -> dict[str, Any]:
    """Return the content of a file."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every plain value with its path."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield from leaves(child, f"{path}.{name}")
    elif isinstance(value, list):
        for number, child in enumerate(value):
            yield from leaves(child, f"{path}.{number}")
    else:
        yield path, value


@pytest.mark.parametrize("name", FILES)
def test_no_secret_stands_in_a_file(name: str) -> None:
    found = [path for path, value in leaves(values_of(name)) if SECRET.search(path) and value]
    assert found == []
    assert not re.search(r"://[^\s/]+:[^\s/]+@", (FOLDER / name).read_text()), "an address with a password"


@pytest.mark.parametrize(
    ("name", "path"), [("prefect-server.yaml", "global.prefect"), ("prefect-worker.yaml", "worker")]
)
def test_servers_and_workers_have_the_version_of_the_lock(name: str, path: str) -> None:
    values: Any = values_of(name)
    for part in path.split("."):
        values = values[part]
    locked = re.search(r"^prefect==(\S+)", (ROOT / "infra/lock/stack.txt").read_text(), re.MULTILINE)
    assert locked and values["image"]["prefectTag"].split("-")[0] == locked[1]


def test_the_worker_serves_the_pool_that_is_deployed_and_makes_none() -> None:
    config = values_of("prefect-worker.yaml")["worker"]["config"]
    assert config["workPool"] in POOLS and config["installPolicy"] == "never"
    assert POOLS[config["workPool"]][0] == f"prefect_{config['type']}.worker"


@pytest.mark.parametrize("version", (VERSIONS[0], VERSIONS[-1]))
def test_the_worker_of_runs_is_a_deployment_that_a_strict_server_takes(version: str) -> None:
    kubernetes_validate.validate(values_of("cpu-worker.yaml"), version, strict=True)


def test_the_worker_of_runs_is_that_of_the_containers_and_no_root() -> None:
    """Prefect's charts have none of its kind: on Kubernetes nobody served the pool in which runs wait."""
    pod: Any = values_of("cpu-worker.yaml")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    compose: Any = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text())
    makes_pool, serves_it = (" ".join(compose["services"][name]["command"]) for name in ("pool-cpu", "worker-cpu"))
    assert container["command"] == ["sh", "-ec", f"{makes_pool} && exec {serves_it}"]
    assert re.search("@sha256:[0-9a-f]{64}$", container["image"])
    assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
    written = {entry["value"] for entry in container["env"] if entry["name"].endswith("HOME")}
    assert all(path.startswith(container["volumeMounts"][0]["mountPath"]) for path in written)


def test_no_server_is_without_a_login_or_beside_its_database() -> None:
    values = values_of("prefect-server.yaml")
    assert values["server"]["basicAuth"] == {"enabled": True, "existingSecret": "limbeck-prefect-login"}
    assert values["ingress"]["tls"] is True and not values["postgresql"]["enabled"] and not values["redis"]["enabled"]
    settings = {entry["name"]: entry["value"] for entry in values["global"]["prefect"]["env"]}
    assert settings["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == f"https://{values['ingress']['host']['hostname']}"
    assert settings["PREFECT_SERVER_DATABASE_MIGRATE_ON_START"] == "false" and values["migrations"]["enabled"]
