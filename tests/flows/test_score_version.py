"""A registered version is scored as its users get it: pulled, asked again, held against what it answered when it was
judged, and against the champion."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from flows.publish.events import REGISTERED, announce
from flows.run.forms import VersionToScore
from flows.score_version import score_version
from tasks.errors import DataError, GateError, RegistryError
from tasks.ports.tracking.tracker import Tracker
from tasks.results.run import RunResult
from tests.flows.test_compress import FAST, recipe_for

NAME = "tiny-scored"


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path) -> dict[str, Any]:
    """Two students: the smaller one becomes champion."""
    changes = {
        "general_distillation": None,
        "corpus": None,
        "augmentation": None,
        "layer_dropping": None,
        "task_distillation": {"prediction": FAST},
    }
    gate = {"criteria": [{"metric": "bytes", "at_most": 1e9}], "register_as": NAME, "margin": 1.0, "too_good": 1.0}
    students = [{"name": f"layers-{number}", "layers": number} for number in (3, 2)]
    return run_recipe(recipe_for(tiny_bert, tiny_rows, **changes, students=students, gate=gate), home=home)


@pytest.fixture(autouse=True)
def at_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def score(**order: Any) -> dict[str, Any]:
    return asyncio.run(score_version(VersionToScore(name=NAME, **order)))


def tags(home: Home, number: str) -> dict[str, Any]:
    return next(
        row for row in Tracker(home.own_tracking_uri, home.artifacts).versions(NAME) if row["version"] == number
    )


def test_what_is_served_is_what_was_judged(result: dict[str, Any], home: Home) -> None:
    model = next(model for model in result["models"] if model["name"] == "layers-3")
    found = score(version="1")
    assert (
        found["same"] == 1.0
        and found["score.validation.accuracy"] == model["metrics"]["validation"]["accuracy"]["value"]
    )
    noted = tags(home, "1")
    assert noted["score.as_judged"] == "1.0000" and noted["score.validation.accuracy"].startswith(
        f"{found['score.validation.accuracy']:.4f} ["
    )
    assert noted["score.validation.ahead_of_champion"].endswith("(version 2, accuracy)")
    assert "score.validation.ahead_of_champion" not in score(version="champion"), (
        "the champion is not held against itself"
    )


def test_the_figures_stand_below_the_run_that_made_the_version(result: dict[str, Any], home: Home) -> None:
    score(version="1", beside="nothing")
    tracker = Tracker(home.own_tracking_uri, home.artifacts)
    maker = tracker.find_version(NAME, "1").run_id
    experiment = tracker.client.get_run(maker).info.experiment_id
    below = tracker.client.search_runs(
        [experiment], f"tags.mlflow.parentRunId = '{maker}' and tags.`score.of` = '{NAME} version 1'"
    )
    assert below and below[0].info.status == "FINISHED" and below[0].data.metrics["score.as_judged"] == 1.0
    assert tracker.runs(1)[0]["run"] == maker, "it is no run of its own that limbeck report would take for the newest"


def test_rows_of_ones_own(result: dict[str, Any], home: Home, tmp_path: Path) -> None:
    lines = [
        f"the film {number} was {'good' if number % 3 else 'bad'},{'positive' if number % 3 else 'negative'}"
        for number in range(30)
    ]
    (tmp_path / "last-month.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    found = score(version="1", source=str(tmp_path / "last-month.csv"))
    assert found["same"] is None and set(found) >= {"score.last-month.accuracy", "score.last-month.ahead_of_champion"}
    hits = found["score.last-month.accuracy"] * 30
    assert abs(hits - round(hits)) < 1e-6, "every row counts, and none is held back"
    (tmp_path / "folder").mkdir()
    shutil.copyfile(tmp_path / "last-month.csv", tmp_path / "folder" / "test.csv")
    assert (
        score(version="1", source=str(tmp_path / "folder"), label="again")["score.again.accuracy"]
        == found["score.last-month.accuracy"]
    )
    assert tags(home, "1")["score.again.accuracy"]


def test_what_cannot_be_scored(result: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="has no version 9"):
        score(version="9")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "train.csv").write_text("text,label\na good film,positive\n")
    with pytest.raises(DataError, match="name one file, or a folder with one file validation"):
        score(version="1", source=str(tmp_path / "empty"))


def test_a_model_that_answers_otherwise_is_told(
    result: dict[str, Any], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.score_version.agreement", lambda then, now, kind: 0.5)
    with pytest.raises(
        GateError, match="version 1 predicts 50.0% of the rows as in its evaluation, and at least 99% are expected"
    ):
        score(version="1")
    assert tags(home, "1")["score.as_judged"] == "0.5000", "written down before it is refused"


def test_new_versions_are_announced_once(result: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr("prefect.events.emit_event", lambda event, **content: told.append({"event": event, **content}))
    finished = RunResult.model_validate(result)
    announce(finished)
    assert [(one["event"], one["payload"]["version"], one["payload"]["name"]) for one in told] == [
        (REGISTERED, "1", NAME),
        (REGISTERED, "2", NAME),
    ]
    told.clear()
    announce(finished.replaced(registered=[entry.replaced(new=False) for entry in finished.registered]))
    assert not told
