"""A home is the same with ``limbeck ui`` and without: what was logged one way is found the other way.

And several processes may begin in a new home.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from flows.home import Home
from flows.servers.local import Server
from flows.servers.serve import OneStart
from tasks.errors import RegistryError
from tasks.ports.tracking.client import local_folder
from tasks.ports.tracking.tracker import Tracker

RECIPE = {"name": "small"}


@pytest.fixture
def home(mlflow: Server, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home of the server, for a client that knows its password."""
    for name, value in mlflow.client.items():
        monkeypatch.setenv(name, value)
    return Home(mlflow.log.parent.parent)


def tracker(home: Home, uri: str, experiment: str) -> Tracker:
    return Tracker(uri, home.artifacts, experiment=experiment, run_name="a run", recipe=RECIPE)


def a_run(opened: Tracker) -> str:
    opened.open()
    opened.note("ledger", {"by": opened.uri})
    opened.close("FINISHED")
    return opened.parent


def a_model(opened: Tracker, name: str, folder: Path) -> str:
    """Register a folder by MLflow's own words; return its version."""
    client = opened.client
    model = client.create_logged_model(opened.experiment_id, name="small", source_run_id=opened.parent)
    client.log_model_artifacts(model.model_id, str(folder))
    client.finalize_logged_model(model.model_id, "READY")
    opened.require_registered(name, {})
    return str(
        client.create_model_version(name, f"models:/{model.model_id}", opened.parent, model_id=model.model_id).version
    )


@pytest.mark.parametrize("first", ["with", "without"])
def test_what_is_logged_with_the_server_is_found_without_it_and_the_other_way(
    first: str, home: Home, mlflow: Server, tmp_path: Path
) -> None:
    """On 941b8b9 an experiment that was made through the server made every later command without it fail."""
    uris = {"with": mlflow.access.url, "without": home.own_tracking_uri}
    second = "without" if first == "with" else "with"
    (tmp_path / "MLmodel").write_text("a model")
    one, two = (tracker(home, uris[way], f"glue/{first}") for way in (first, second))
    runs = {one.uri: a_run(one), two.uri: a_run(two)}
    assert one.experiment_id == two.experiment_id
    for way in (one, two):
        for maker, run in runs.items():
            assert way.recall(run, "recipe") == RECIPE and way.recall(run, "ledger") == {"by": maker}
            assert [entry.path for entry in way.client.list_artifacts(run, "run")] == [
                "run/ledger.json",
                "run/recipe.json",
            ]
    for maker in (one, two):
        number = a_model(maker, f"model-{first}", tmp_path)
        for way in (one, two):
            version = way.find_version(f"model-{first}", number)
            place = local_folder(way.require_own(version), way.served)
            assert place is None or (place / "MLmodel").read_text() == "a model"
            fetched = way.fetch(f"models:/{version.name}/{number}", tmp_path.parent / f"{way is one}-{number}-{first}")
            assert (fetched / "MLmodel").read_text() == "a model"


def test_an_old_home_that_only_ever_saw_the_server_is_read_after_it_moved(
    home: Home, mlflow: Server, tmp_path: Path
) -> None:
    run = a_run(tracker(home, mlflow.access.url, "old"))
    moved = Home(tmp_path / "moved").create()
    with sqlite3.connect(home.root / "mlflow.db") as source, sqlite3.connect(moved.root / "mlflow.db") as target:
        source.backup(target)
        places = dict(source.execute("SELECT name, artifact_location FROM experiments").fetchall())
    assert places["old"].startswith("mlflow-artifacts:/") and places["Default"] == "mlflow-artifacts:/0", (
        "as the server of 941b8b9 writes it"
    )
    shutil.copytree(home.artifacts, moved.artifacts)
    assert tracker(moved, moved.own_tracking_uri, "old").recall(run, "recipe") == RECIPE


def test_a_place_that_climbs_out_of_the_served_folder_is_refused(tmp_path: Path) -> None:
    assert local_folder("mlflow-artifacts:/1/run/artifacts", tmp_path) == tmp_path / "1" / "run" / "artifacts"
    assert (
        local_folder("mlflow-artifacts://elsewhere:5000/1", tmp_path) is None
        and local_folder("mlflow-artifacts:/1", None) is None
    )
    for place in ("mlflow-artifacts:/../../etc", "mlflow-artifacts:/1/%2e%2e/%2e%2e/etc"):
        with pytest.raises(RegistryError, match="is outside"):
            local_folder(place, tmp_path)


def begin(home: Home, number: int, said: Any) -> None:
    """Begin in a new home, as a run does."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    try:
        said.put(a_run(tracker(home.create(), home.own_tracking_uri, f"experiment-{number}")))
    except BaseException as error:  # noqa: BLE001 - the test reads it
        said.put(error)


def test_five_processes_begin_at_once_in_a_new_home(tmp_path: Path, template: Path) -> None:
    """On 941b8b9 all but one died in MLflow's migration.

    ``template`` has loaded MLflow: what is forked from here need not.
    """
    home, fork = Home(tmp_path / "home"), multiprocessing.get_context("fork")
    said = fork.Queue()
    processes = [fork.Process(target=begin, args=(home, number, said)) for number in range(5)]
    for process in processes:
        process.start()
    runs = [said.get(timeout=240) for _ in processes]
    for process in processes:
        process.join(60)
    assert all(isinstance(run, str) for run in runs) and len(set(runs)) == 5, runs


def test_one_prefect_at_a_time_brings_a_database_up_to_date(tmp_path: Path) -> None:
    inside, most = 0, 0

    async def starting(scope: Any, receive: Any, send: Any) -> None:
        nonlocal inside, most
        inside, most = inside + 1, max(most, inside + 1)
        await asyncio.sleep(0.05)
        inside -= 1
        await send({"type": "lifespan.startup.complete"})
        await asyncio.sleep(0.2)

    async def several() -> None:
        async def send(message: Any) -> None:
            """Hear that it has started."""

        apps = [OneStart(starting, f"sqlite+aiosqlite:///{tmp_path}/prefect.db") for _ in range(4)]
        await asyncio.gather(*(app({"type": "lifespan"}, None, send) for app in apps))

    asyncio.run(several())
    assert most == 1
