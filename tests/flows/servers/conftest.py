"""One MLflow server for the tests of this folder, as ``limbeck ui`` runs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flows.home import Home
from flows.servers.local import Server
from tests.prefect_server import guarded


@pytest.fixture(scope="session")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run it on a home of its own, whose folder is that of its log's folder."""
    with guarded(Home(tmp_path_factory.mktemp("mlflow") / "home").create(), "mlflow") as server:
        yield server
