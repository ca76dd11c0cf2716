"""Values of Prefect's charts and KServe's manifest: no secret in a file, versions of the lock, a pool that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.pools.generate import POOLS

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


def test_no_server_is_without_a_login_or_beside_its_database() -> None:
    values = values_of("prefect-server.yaml")
    assert values["server"]["basicAuth"] == {"enabled": True, "existingSecret": "limbeck-prefect-login"}
    assert values["ingress"]["tls"] is True and not values["postgresql"]["enabled"] and not values["redis"]["enabled"]
    settings = {entry["name"]: entry["value"] for entry in values["global"]["prefect"]["env"]}
    assert settings["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == f"https://{values['ingress']['host']['hostname']}"
    assert settings["PREFECT_SERVER_DATABASE_MIGRATE_ON_START"] == "false" and values["migrations"]["enabled"]
