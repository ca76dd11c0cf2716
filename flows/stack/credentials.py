"""Secrets of the stack: generated once, in a file that only its owner can read. An environment variable of the same
name takes precedence and is never written to the file.

The names are those of ``infra/compose.yaml``, so one secret store serves both; ``python -m flows.stack.credentials``
prints a new set for it.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from flows.servers.access import write_private
from tasks.errors import StackError


def password() -> str:
    """Return a random password of 192 bits that needs no quoting anywhere."""
    return secrets.token_urlsafe(24)


def access_key() -> str:
    """Return a random string in the form of an AWS access key."""
    return base64.b32encode(secrets.token_bytes(10)).decode()


def fernet_key() -> str:
    """Return a random key for cryptography.fernet."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


SECRETS: dict[str, Callable[[], str]] = {
    "LIMBECK_POSTGRES_PASSWORD": password,
    "LIMBECK_PREFECT_DB_PASSWORD": password,
    "LIMBECK_MLFLOW_DB_PASSWORD": password,
    "LIMBECK_REDIS_PASSWORD": password,
    "LIMBECK_PREFECT_PASSWORD": password,
    "LIMBECK_PREFECT_WORKER_TOKEN": password,
    "LIMBECK_PREFECT_ENCRYPTION_KEY": fernet_key,
    "LIMBECK_MLFLOW_PASSWORD": password,
    "LIMBECK_MLFLOW_WORKER_PASSWORD": password,
    "LIMBECK_MLFLOW_SECRET_KEY": password,
    "LIMBECK_METRICS_PASSWORD": password,
    "LIMBECK_METRICS_DB_PASSWORD": password,
    "LIMBECK_S3_STORE_ACCESS_KEY": access_key,
    "LIMBECK_S3_STORE_SECRET_KEY": password,
    "LIMBECK_S3_MLFLOW_ACCESS_KEY": access_key,
    "LIMBECK_S3_MLFLOW_SECRET_KEY": password,
}
PERSON, WORKER = "limbeck", "limbeck-worker"
"""Accounts of the servers. The first has all rights, and in MLflow people may have accounts of their own; workers have
one that may not manage accounts in MLflow, and no deployments or pools in Prefect."""
MONITOR = "limbeck_monitor"
"""The role of the exporter of metrics in PostgreSQL."""


def load(file: Path) -> dict[str, str]:
    """Return every secret; environment variables take precedence over the file."""
    return {name: os.environ.get(name) or value for name, value in kept(file).items()}


def kept(file: Path) -> dict[str, str]:
    """Return the secrets of the file, empty if missing; refuse a file that others can read."""
    try:
        if file.stat().st_mode & 0o077:
            raise StackError(
                f"{file} can be read by others; run: chmod 600 {file}, and change its passwords if others use this "
                f"machine"
            )
        found: Mapping[str, str] = json.loads(file.read_text())
    except FileNotFoundError:
        found = {}
    except ValueError as error:
        raise StackError(f"{file} is not JSON ({error}); restore it from a backup") from error
    return {name: found.get(name, "") for name in SECRETS}


def generate(file: Path) -> dict[str, str]:
    """Add missing secrets to the file, and return every secret."""
    found = kept(file)
    missing = [name for name, value in found.items() if not value and not os.environ.get(name)]
    if missing:
        found |= {name: SECRETS[name]() for name in missing}
        write(file, {name: value for name, value in found.items() if value})
    return load(file)


def write(file: Path, values: Mapping[str, str]) -> None:
    """Write the file so that other users can read it at no moment."""
    write_private(file, json.dumps(dict(values), indent=2))


if __name__ == "__main__":
    print("\n".join(f"{name}={make()}" for name, make in SECRETS.items()))
