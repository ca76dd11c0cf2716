"""Settings of one stack: its folder, ports and S3 server. Stored in ``LIMBECK_HOME/stack/stack.json``; secrets are in a
file of their own.

Ports are below the kernel's range for outgoing connections (32768 and up on Linux); chosen ports are stored, too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from flows.home import Home
from tasks.errors import StackError

PUBLIC_PORTS = {"prefect": 4200, "mlflow": 5000}
"""Ports that people open in a browser: they are never changed silently."""
INNER = {
    "api-1": 14201,
    "api-2": 14202,
    "mlflow-plain": 14203,
    "postgres": 15432,
    "redis": 16379,
    "s3": 17480,
    "s3-plain": 17481,
    "ceph": 17490,
    "metrics": 19464,
}
"""Ports of servers that no person opens; ``-plain`` are those of MLflow and S3 behind nginx, if it terminates TLS."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LONGEST_FOLDER = (
    60  # a Unix socket's path is cut at 107 bytes, and Python's processes add some 40 to their temporary folder
)


@dataclass(frozen=True)
class Settings:
    """Settings chosen at the first ``limbeck up``; host, S3 server and bucket names never change afterwards."""

    host: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=lambda: PUBLIC_PORTS | INNER)
    s3: str = "folder"
    """``radosgw`` (part of this stack), ``folder`` (no S3: folders of this machine), ``aws``, or an endpoint's URL."""
    buckets: str = "limbeck"
    """Prefix of the bucket names: ``-store`` holds Limbeck's results, ``-artifacts`` holds MLflow's artifacts."""
    pools: tuple[str, ...] = ("cpu", "gpu-local")
    worker_user: str = ""
    """The user that runs the workers of a stack of root; empty or ``root``: the user who runs ``limbeck up``."""
    proxy: bool = True
    """Whether nginx stands before two API servers; otherwise there is one, and clients connect to it directly."""
    tls: str = ""
    """Origin of the certificate with which nginx terminates TLS: ``certificate`` (the user's) or ``authority`` (the
    stack's own); empty without TLS, which is for the loopback address alone."""
    migrated: Mapping[str, str] = field(default_factory=dict)
    """Versions of Prefect and MLflow for which the databases were last migrated."""


class StackOptions(TypedDict, total=False):
    """Settings asked for on the command line; None is as before, or the default."""

    host: str | None
    prefect_port: int | None
    mlflow_port: int | None
    s3: str | None
    buckets: str | None
    pools: tuple[str, ...] | None
    worker_user: str | None


@dataclass(frozen=True)
class Stack:
    """The stack of one home folder."""

    root: Path
    settings: Settings = field(default_factory=Settings)

    @classmethod
    def of(cls, home: Home) -> Stack:
        """Return the stack of a home with its stored settings, or a new one."""
        stack = cls(home.root / "stack")
        try:
            found = json.loads(stack.file.read_text())
            return replace(stack, settings=Settings(**found | {"pools": tuple(found["pools"])}))
        except FileNotFoundError:
            return stack
        except (ValueError, TypeError, KeyError) as error:
            raise StackError(
                f"{stack.file} cannot be read ({error}); restore it from a backup, or move {stack.root} away to "
                f"create a new stack"
            ) from error

    @property
    def file(self) -> Path:
        """The file of the settings."""
        return self.root / "stack.json"

    @property
    def secrets_file(self) -> Path:
        """The file of the generated secrets."""
        return self.root / "secrets.json"

    @property
    def next_secrets_file(self) -> Path:
        """The file of the secrets of a rotation that is not complete."""
        return self.root / "secrets.next.json"

    @property
    def is_new(self) -> bool:
        """Whether this stack was never started."""
        return not self.file.exists()

    @property
    def data(self) -> Path:
        """The data folder, with a private folder for each server; links are resolved, because a server may not have
        the right to follow them."""
        return (self.root / "data").resolve()

    @property
    def logs(self) -> Path:
        """The folder of the logs, one file for each process."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """The folder of the supervisor's configuration and sockets."""
        return self.root / "run"

    @property
    def sockets(self) -> Path:
        """The folder of sockets and temporary files: ``run``, or one in /tmp if that path is too long for a socket."""
        return (
            self.run
            if len(str(self.run)) <= LONGEST_FOLDER
            else Path("/tmp") / f"limbeck-{os.geteuid()}-{self.fingerprint}"
        )

    @property
    def supervisor_socket(self) -> Path:
        """The supervisor's control socket."""
        return self.sockets / "supervisor.sock"

    @property
    def workers(self) -> Path:
        """The folder of the workers, which belongs to the user that runs them."""
        return self.data / "workers"

    @property
    def workers_apart(self) -> bool:
        """Whether the workers run as another user than the servers, who can read nothing of theirs."""
        return self.settings.worker_user not in ("", "root")

    @property
    def worker_home(self) -> Path:
        """``LIMBECK_HOME`` of the workers: that of the stack, or one of their own if they are another user."""
        return self.workers / "home" if self.workers_apart else self.root.parent

    @property
    def temporary(self) -> Path:
        """The temporary folder of the workers: Prefect's own in /tmp belongs to the first user of the machine that
        starts a worker."""
        if not self.workers_apart:
            return self.sockets / "tmp"
        own = self.workers / "tmp"
        return own if len(str(own)) <= LONGEST_FOLDER else Path("/tmp") / f"limbeck-workers-{self.fingerprint}"

    @property
    def fingerprint(self) -> str:
        """A short hash of the stack's folder, which distinguishes the stacks of different homes."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:10]

    @property
    def replicas(self) -> tuple[str, ...]:
        """Process names of Prefect's API servers."""
        return ("api-1", "api-2") if self.settings.proxy else ("api-1",)

    @property
    def prefect_url(self) -> str:
        """The address of Prefect for people and workers."""
        return self.url("prefect")

    @property
    def mlflow_url(self) -> str:
        """The address of MLflow for people and workers."""
        return self.url("mlflow")

    def url(self, name: str) -> str:
        """Return the address of a server for people and workers."""
        return f"http{'s' if self.settings.tls else ''}://{self.settings.host}:{self.settings.ports[name]}"

    @property
    def metrics_url(self) -> str:
        """The address of the metrics for Prometheus: nginx serves them beside Prefect, else the exporter by itself."""
        return f"{self.prefect_url if self.settings.proxy else self.inner_metrics_url}/metrics"

    @property
    def inner_metrics_url(self) -> str:
        """The address of the exporter itself, on this machine alone."""
        return f"http://127.0.0.1:{self.settings.ports['metrics']}"

    def listens(self, name: str) -> tuple[str, int]:
        """Return the address on which MLflow or the S3 server itself listens: behind nginx, if that terminates TLS."""
        ports = self.settings.ports
        return ("127.0.0.1", ports[f"{name}-plain"]) if self.settings.tls else (self.settings.host, ports[name])

    @property
    def tls(self) -> Path:
        """The folder of the stack's own authority; its key is for the user of ``limbeck up`` alone."""
        return self.root / "tls"

    @property
    def certificate(self) -> Path:
        """The certificate that nginx shows, with its chain."""
        return self.data / "nginx" / "server.crt"

    @property
    def certificate_key(self) -> Path:
        """The key of that certificate."""
        return self.data / "nginx" / "server.key"

    @property
    def trust(self) -> Path:
        """The authorities that clients of this stack trust: the public ones, and that of its certificate."""
        return self.data / "trust.pem"

    @property
    def authorities(self) -> Path | None:
        """The file of authorities for a client of this stack; None without TLS."""
        return self.trust if self.settings.tls else None

    @property
    def worker_tokens(self) -> Path:
        """The file with digests of the tokens of workers on other machines, which Prefect's servers read."""
        return self.data / "prefect" / "workers.json"

    @property
    def endpoint(self) -> str:
        """The S3 endpoint; empty for AWS itself and for local folders."""
        return {"radosgw": self.url("s3"), "folder": "", "aws": ""}.get(self.settings.s3, self.settings.s3)

    @property
    def store(self) -> str:
        """The value of ``LIMBECK_STORE`` for all users of this stack."""
        return str(self.data / "store") if self.settings.s3 == "folder" else f"s3://{self.settings.buckets}-store"

    @property
    def artifacts(self) -> str:
        """The address of MLflow's artifacts."""
        return (
            str(self.data / "mlflow" / "artifacts")
            if self.settings.s3 == "folder"
            else f"s3://{self.settings.buckets}-artifacts"
        )

    def save(self) -> None:
        """Write the settings."""
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(self.settings), indent=2) + "\n")
        temporary.replace(self.file)
