"""MLflow's client, and what every question to MLflow needs: an address that answers, one sentence for its failures, no
password in a text.

MLflow's client is used throughout, never its "active run", which is global state that branches side by side would fight
over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import urllib.error
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tasks.errors import RegistryError
from tasks.ports.tracking.migrations import one_at_a_time

PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}  # of databases that MLflow keeps its tables in
SQL_NOISE = ("(Background on", "[SQL:", "[parameters:")  # lines of a database's error that tell people nothing


class Client:
    """The MLflow behind an address; ``artifact_root`` is the folder of its artifacts where this machine has it."""

    def __init__(self, uri: str, artifact_root: Path | None) -> None:
        self.uri, self.artifact_root = uri, artifact_root

    @cached_property
    def client(self) -> Any:
        """MLflow's client, loaded when it is first needed."""
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("mlflow").setLevel(logging.ERROR)
        require_reachable(self.uri)
        # MLflow would hand out addresses of its S3 server as it sees it itself; who has no way to that server would
        # wait for ever.
        for way in ("UPLOAD", "DOWNLOAD"):
            os.environ.setdefault(f"MLFLOW_ENABLE_PROXY_MULTIPART_{way}", "false")
        import mlflow
        from mlflow.tracking import MlflowClient

        # Registering reads the model back through MLflow's own default address, whatever address the client was given.
        mlflow.set_tracking_uri(self.uri)
        resolve_served_artifacts(self.uri, self.served)
        with one_at_a_time(self.uri):  # it makes or migrates the tables of a database in a file
            return MlflowClient(tracking_uri=self.uri)

    @property
    def served(self) -> Path | None:
        """The folder behind ``mlflow-artifacts:/``, where this tracker opens the database of the server that keeps
        it."""
        return self.artifact_root if self.uri.startswith("sqlite:") else None

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Turn MLflow's many ways of failing into one sentence."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, troubles()):
                raise
            said = [line for line in str(error).strip().splitlines() if not line.startswith(SQL_NOISE)]
            raise RegistryError(
                without_secrets(f"MLflow at {self.uri} could not {what}: {said[-1] if said else type(error).__name__}")
            ) from error


def troubles() -> tuple[type[Exception], ...]:
    """Return the errors that are MLflow's, its database's, its network's or the disk's; loaded only when something has
    gone wrong."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError


def require_reachable(uri: str) -> None:
    """Ask once, briefly: MLflow itself would go on asking for minutes before it gives up."""
    advice = "start it, or set MLFLOW_TRACKING_URI to one that is there"
    if uri.startswith("sqlite:///"):
        file = Path(unquote(urlparse(uri).path.removeprefix("/")))
        place = next(
            path for path in (file, *file.absolute().parents) if path.exists()
        )  # MLflow makes the folders between
        if place.is_dir() == (place == file) or not os.access(place, os.W_OK):
            raise RegistryError(
                f"MLflow's database {file} cannot be written; set LIMBECK_HOME or MLFLOW_TRACKING_URI to a place "
                f"that can"
            )
    elif uri.startswith(("http://", "https://")):
        try:
            urllib.request.urlopen(without_secrets(uri).rstrip("/") + "/health", timeout=5).close()
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return  # somebody answers; whether it is MLflow shows in the first real question
            raise RegistryError(
                without_secrets(f"the MLflow server at {uri} does not do its work (status {error.code}); {advice}")
            ) from error
        except (OSError, ValueError) as error:
            raise RegistryError(
                without_secrets(f"there is no MLflow server at {uri} ({getattr(error, 'reason', error)}); {advice}")
            ) from error
    elif urlparse(uri).scheme.partition("+")[0] in PORTS:
        require_database(uri, advice)


def require_database(uri: str, advice: str) -> None:
    """Ask once whether anybody listens where MLflow's database is; a socket without a host is not asked."""
    place = urlparse(uri)
    try:
        if place.hostname:
            socket.create_connection(
                (place.hostname, place.port or PORTS[place.scheme.partition("+")[0]]), timeout=5
            ).close()
    except (OSError, ValueError) as error:
        raise RegistryError(without_secrets(f"there is no database of MLflow at {uri} ({error}); {advice}")) from error


def resolve_served_artifacts(uri: str, root: Path | None) -> None:
    """Let MLflow find artifacts without the server through which they were logged.

    An experiment that was made through ``limbeck ui`` has ``mlflow-artifacts:/…`` for its place: what that server keeps
    in this home's own folder. Where the database of the home is opened itself, the folder is, too.
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
            raise RegistryError(f"{place} is kept by another server; set MLFLOW_TRACKING_URI to it")
        return LocalArtifactRepository(folder.as_uri(), tracking_uri=tracking_uri, registry_uri=registry_uri)

    known._artifact_repository_registry.register("mlflow-artifacts", repository)


def local_folder(place: str, served: Path | None) -> Path | None:
    """Return the folder behind an artifact location; None where it is not on this machine. ``served`` is what a server
    of this home serves."""
    found = urlparse(place)
    if found.scheme == "mlflow-artifacts" and served is not None and not found.netloc:
        inside = Path(unquote(found.path)).relative_to("/")
        if ".." in inside.parts:
            raise RegistryError(f"{place} leads out of the artifacts of this MLflow; nothing was read")
        return served.resolve() / inside
    return Path(unquote(found.path)) if found.scheme in ("", "file") else None


def without_secrets(text: str) -> str:
    """Strike out user and password of every address in a text."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)


def every(search: Callable[..., Any], **given: Any) -> Iterator[Any]:
    """Go through all pages of one of MLflow's searches."""
    token = None
    while True:
        page = search(page_token=token, **given)
        yield from page
        token = page.token
        if not token:
            return


def legal(name: str) -> str:
    """Return a name that MLflow takes."""
    return re.sub(r"[^\w/ .:-]", "_", name)[:250]
