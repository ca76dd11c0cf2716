"""What one stack is: where it lives, on which ports, which S3 server it has. Kept in ``LIMBECK_HOME/stack/stack.json``;
secrets are elsewhere.

Ports are below the range from which kernels lend ports to outgoing connections (32768 and up on Linux), and are kept
once chosen.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from flows.home import Home
from tasks.errors import StackError

SHOWN = {"prefect": 4200, "mlflow": 5000}
"""Ports that people open in a browser: they are never moved silently."""
INNER = {"api-1": 14201, "api-2": 14202, "postgres": 15432, "redis": 16379, "s3": 17480, "ceph": 17490}
LONGEST_FOLDER = (
    60  # a Unix socket's path is cut at 107 bytes, and Python's processes add some 40 to their temporary folder
)


@dataclass(frozen=True)
class Settings:
    """What was chosen at the first ``limbeck up`` and stays."""

    host: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=lambda: SHOWN | INNER)
    s3: str = "folder"
    """``radosgw`` (ours), ``folder`` (none: folders of this machine), ``aws``, or the URL of an endpoint."""
    buckets: str = "limbeck"
    """Names begin with this: -store for Limbeck's results, -artifacts for MLflow's."""
    pools: tuple[str, ...] = ("cpu", "gpu-local")
    proxy: bool = True
    """nginx before two API servers; without nginx there is one API server, and clients ask it themselves."""
    migrated: Mapping[str, str] = field(default_factory=dict)
    """Which versions the databases were last migrated for."""


@dataclass(frozen=True)
class Stack:
    """The stack of one home folder."""

    root: Path
    settings: Settings = field(default_factory=Settings)

    @classmethod
    def of(cls, home: Home) -> Stack:
        """Return the stack of a home as its file says, or one that was never started."""
        stack = cls(home.root / "stack")
        try:
            found = json.loads(stack.file.read_text())
            return replace(stack, settings=Settings(**found | {"pools": tuple(found["pools"])}))
        except FileNotFoundError:
            return stack
        except (ValueError, TypeError, KeyError) as error:
            raise StackError(
                f"{stack.file} cannot be read ({error}); restore it from a back-up, or move {stack.root} away to "
                f"begin anew"
            ) from error

    @property
    def file(self) -> Path:
        """Where the settings are."""
        return self.root / "stack.json"

    @property
    def secrets_file(self) -> Path:
        """Where generated secrets are."""
        return self.root / "secrets.json"

    @property
    def is_new(self) -> bool:
        """Whether it was never started."""
        return not self.file.exists()

    @property
    def data(self) -> Path:
        """One folder for each server, its own alone; where it really is, for a server may not be allowed to walk to the
        link."""
        return (self.root / "data").resolve()

    @property
    def logs(self) -> Path:
        """One file for each process."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Configuration and sockets of the supervisor."""
        return self.root / "run"

    @property
    def sockets(self) -> Path:
        """Where sockets and what is temporary are: here, or under /tmp if this home's path is too long for a socket."""
        return (
            self.run
            if len(str(self.run)) <= LONGEST_FOLDER
            else Path("/tmp") / f"limbeck-{os.geteuid()}-{self.fingerprint}"
        )

    @property
    def supervisor_socket(self) -> Path:
        """Where the supervisor is asked."""
        return self.sockets / "supervisor.sock"

    @property
    def temporary(self) -> Path:
        """What workers have for a temporary folder: Prefect's, under /tmp, belongs to the first user of a machine who
        starts one."""
        return self.sockets / "tmp"

    @property
    def fingerprint(self) -> str:
        """Tells the stack of one home from that of another."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:10]

    @property
    def replicas(self) -> tuple[str, ...]:
        """The API servers of Prefect."""
        return ("api-1", "api-2") if self.settings.proxy else ("api-1",)

    @property
    def prefect_url(self) -> str:
        """Where people and workers reach Prefect."""
        return self.url("prefect")

    @property
    def mlflow_url(self) -> str:
        """Where people and workers reach MLflow."""
        return self.url("mlflow")

    def url(self, name: str) -> str:
        """Return the address of a server that people or workers ask."""
        return f"http://{self.settings.host}:{self.settings.ports[name]}"

    @property
    def endpoint(self) -> str:
        """The S3 endpoint; empty for AWS itself, and where there is no S3 server."""
        return {"radosgw": self.url("s3"), "folder": "", "aws": ""}.get(self.settings.s3, self.settings.s3)

    @property
    def store(self) -> str:
        """What ``LIMBECK_STORE`` is for everybody who uses this stack."""
        return str(self.data / "store") if self.settings.s3 == "folder" else f"s3://{self.settings.buckets}-store"

    @property
    def artifacts(self) -> str:
        """Where MLflow keeps its artifacts."""
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


def is_free(host: str, port: int) -> bool:
    """Tell whether nobody listens on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((host, port))
            return True
    return False


def choose_ports(host: str, wanted: Mapping[str, int | None]) -> dict[str, int]:
    """Return ports for a new stack: those that people open as wanted or as usual, the others the first free ones."""
    chosen = {name: wanted.get(name) or usual for name, usual in SHOWN.items()}
    for name, port in chosen.items():
        if not is_free(host, port):
            raise StackError(
                f"port {port} on {host} is taken; stop what listens there, or choose another with --{name}-port"
            )
    taken = set(chosen.values())
    for name, usual in INNER.items():
        chosen[name] = next(port for port in free_from(usual) if port not in taken)
        taken.add(chosen[name])
    return chosen


def free_from(port: int) -> Iterator[int]:
    """Yield free ports, upwards."""
    return (candidate for candidate in range(port, 32768) if is_free("127.0.0.1", candidate))
