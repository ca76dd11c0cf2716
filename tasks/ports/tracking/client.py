"""MLflow's client and common functions for requests to MLflow: a reachability check, one sentence for each failure, and
the removal of passwords from texts.

Only MLflow's client is used, never its "active run", which is global state and unsafe for concurrent branches.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tasks.errors import RegistryError
from tasks.ports.tracking.migrations import create_mlflow_tables, one_at_a_time

PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}  # default ports of the databases that MLflow supports
SQL_NOISE = re.compile(r"\n(?=\[SQL:|\[parameters:|\(Background on)")  # the statement of a database error follows


class Client:
    """The MLflow at an address; ``artifact_root`` is the folder of its artifacts if it is on this machine."""

    def __init__(self, uri: str, artifact_root: Path | None) -> None:
        self.uri, self.artifact_root = uri, artifact_root

    @cached_property
    def client(self) -> Any:
        """MLflow's client, imported on first use."""
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("mlflow").setLevel(logging.ERROR)
        require_reachable(self.uri)
        # MLflow would return addresses of its S3 server in its own network; clients that cannot reach that server
        # would wait for ever.
        for way in ("UPLOAD", "DOWNLOAD"):
            os.environ.setdefault(f"MLFLOW_ENABLE_PROXY_MULTIPART_{way}", "false")
        import mlflow
        from mlflow.tracking import MlflowClient

        # Registration reads the model back through MLflow's default address, even if the client has another address.
        # MLflow sets the variable as well, and another home in this process would take it for the user's.
        before = os.environ.get("MLFLOW_TRACKING_URI")
        mlflow.set_tracking_uri(self.uri)
        if before is None:
            os.environ.pop("MLFLOW_TRACKING_URI", None)
        else:
            os.environ["MLFLOW_TRACKING_URI"] = before
        resolve_served_artifacts(self.uri, self.served)
        with one_at_a_time(self.uri):
            create_mlflow_tables(self.uri)
            return MlflowClient(tracking_uri=self.uri)

    def load(self) -> None:
        """Import MLflow and prepare its database; raise RegistryError if it cannot be used."""
        with self.asking("be opened"):
            _ = self.client

    @property
    def served(self) -> Path | None:
        """The folder of ``mlflow-artifacts:/`` if this tracker opens the server's SQLite database directly."""
        return self.artifact_root if self.uri.startswith("sqlite:") else None

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Convert all errors of MLflow into a RegistryError with one sentence."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, troubles()):
                raise
            said = SQL_NOISE.split(str(error).strip())[0].strip().splitlines()
            raise RegistryError(
                without_secrets(f"MLflow at {self.uri} could not {what}: {said[-1] if said else type(error).__name__}")
            ) from error


def troubles() -> tuple[type[Exception], ...]:
    """Return the error classes of MLflow, its database, the network and the disk; imported only after an error."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError


def require_reachable(uri: str) -> None:
    """Raise RegistryError if MLflow cannot be reached, after one short attempt; MLflow itself would retry for
    minutes."""
    advice = "start it, or set MLFLOW_TRACKING_URI to a running one"
    if uri.startswith("sqlite:///"):
        file = Path(unquote(urlparse(uri).path.removeprefix("/")))
        # MLflow creates missing folders
        place = next(path for path in (file, *file.absolute().parents) if path.exists())
        if place.is_dir() == (place == file) or not os.access(place, os.W_OK):
            raise RegistryError(
                f"MLflow's database {file} cannot be written; set LIMBECK_HOME or MLFLOW_TRACKING_URI to a writable "
                f"location"
            )
    elif uri.startswith(("http://", "https://")):
        try:
            address, trusted = without_secrets(uri).rstrip("/"), os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH")
            context = ssl.create_default_context(cafile=trusted) if trusted else None
            urllib.request.urlopen(f"{address}/health", timeout=5, context=context).close()
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return  # a server responds; the first real request shows if it is MLflow
            raise RegistryError(
                without_secrets(f"the MLflow server at {uri} does not work (status {error.code}); {advice}")
            ) from error
        except (OSError, ValueError) as error:
            raise RegistryError(
                without_secrets(f"there is no MLflow server at {uri} ({getattr(error, 'reason', error)}); {advice}")
            ) from error
    elif urlparse(uri).scheme.partition("+")[0] in PORTS:
        require_database(uri, advice)


def require_database(uri: str, advice: str) -> None:
    """Raise RegistryError if the host of MLflow's database accepts no connection; a Unix socket is not checked."""
    place = urlparse(uri)
    try:
        if place.hostname:
            socket.create_connection(
                (place.hostname, place.port or PORTS[place.scheme.partition("+")[0]]), timeout=5
            ).close()
    except (OSError, ValueError) as error:
        raise RegistryError(without_secrets(f"there is no database of MLflow at {uri} ({error}); {advice}")) from error


def resolve_served_artifacts(uri: str, root: Path | None) -> None:
    """Let MLflow read artifacts without the server through which they were logged.

    An experiment that was created through ``limbeck ui`` has the artifact location ``mlflow-artifacts:/…``, which that
    server stores in this home's folder. If the home's database is opened directly, the folder is read directly, too.
    """
    if root is None:
        return
    from mlflow.store.artifact import artifact_repository_registry as known
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
    from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

    def repository(place: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> Any:
        import mlflow

        if (tracking_uri or mlflow.get_tracking_uri()) != uri:
            return MlflowArtifactsRepository(place, tracking_uri=tracking_uri, registry_uri=registry_uri)
        folder = local_folder(place, root)
        if folder is None:
            raise RegistryError(f"{place} belongs to another server; set MLFLOW_TRACKING_URI to it")
        return LocalArtifactRepository(folder.as_uri(), tracking_uri=tracking_uri, registry_uri=registry_uri)

    known._artifact_repository_registry.register("mlflow-artifacts", repository)


def local_folder(place: str, served: Path | None) -> Path | None:
    """Return the folder of an artifact location, or None if it is not on this machine. ``served`` is the folder that a
    server of this home serves."""
    found = urlparse(place)
    if found.scheme == "mlflow-artifacts" and served is not None and not found.netloc:
        inside = Path(unquote(found.path)).relative_to("/")
        if ".." in inside.parts:
            raise RegistryError(f"{place} is outside the artifacts of this MLflow; nothing was read")
        return served.resolve() / inside
    return Path(unquote(found.path)) if found.scheme in ("", "file") else None


def without_secrets(text: str) -> str:
    """Return a text without user and password in its addresses."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)


def every(search: Callable[..., Any], **given: Any) -> Iterator[Any]:
    """Yield the results of an MLflow search from all pages."""
    token = None
    while True:
        page = search(page_token=token, **given)
        yield from page
        token = page.token
        if not token:
            return


def summary_line(description: str | None) -> str:
    """Return the first line of a version's description, its summary in lists; the rest is the model card."""
    return (description or "").partition("\n")[0]


def legal(name: str) -> str:
    """Return a name with characters and length that MLflow accepts."""
    return re.sub(r"[^\w/ .:-]", "_", name)[:250]
