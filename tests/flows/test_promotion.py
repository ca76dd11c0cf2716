"""From a run to the registry and back: two runs with different candidates, and what a person does and sees between
them."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.cli.registered_models import show
from flows.cli.registry_page import show_model, show_version
from flows.cli.runner import run_recipe
from flows.home import Home
from flows.promotion import delete, promote, rollback
from flows.publish.results import champion_line, summary
from tasks.errors import DataError, EvaluationChanged, GateError, RecipeError, RegistryError
from tasks.ports.tracking.registry import Registry, RegistryState
from tasks.ports.tracking.tracker import Tracker
from tasks.results.run import RunResult
from tasks.scoring.evaluation import read_evaluation
from tests.flows.test_compress import FAST, recipe_for
from tests.forked.interpreter import interpreter

NAME, SIZE = "tiny-small", 47_000  # bytes: of three layers less, of four more


@pytest.fixture(scope="module")
def runs(
    prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path
) -> list[dict[str, Any]]:
    """Three runs: students of four layers, which is too many, and of three; then one of two; then one of a single
    layer, which a person is to look at."""

    def run(*layers: int, most: float = 1e9, **gate: Any) -> dict[str, Any]:
        changes = {
            "general_distillation": None,
            "corpus": None,
            "augmentation": None,
            "layer_dropping": None,
            "task_distillation": {"prediction": FAST},
        }
        students = [{"name": f"layers-{number}", "layers": number} for number in layers]
        # A margin of one whole: models that were hardly trained differ as chance wills, and this is not about their
        # quality.
        knobs = {
            "criteria": [{"metric": "bytes", "at_most": most}],
            "register_as": NAME,
            "margin": 1.0,
            "too_good": 1.0,
            **gate,
        }
        return run_recipe(
            recipe_for(tiny_bert, tiny_rows, **changes, name=f"run-{layers[0]}", students=students, gate=knobs),
            home=home,
        )

    return [run(4, 3, most=SIZE), run(2), run(1, promote="manual")]


def tracker(home: Home) -> Tracker:
    return Tracker(home.own_tracking_uri, home.artifacts)


def standing(home: Home) -> RegistryState:
    return Registry(tracker(home), NAME).read()


def test_the_smaller_one_takes_over_and_a_person_is_asked_about_the_next(
    runs: list[dict[str, Any]], home: Home
) -> None:
    first, second, third = runs
    unsteady = next(model["unsteady"] for model in first["models"] if model["name"] == "layers-3")
    fastest = (
        {} if unsteady else {"champion-fast": "2"}
    )  # on a machine that others use now, too, nobody is known to be the fastest
    assert first["promotion"]["moves"] == {"champion": "2", "champion-small": "2", **fastest}
    assert [(model.get("verdict"), model["gate"]) for model in first["models"]] == [
        (None, "—"),
        ("INFEASIBLE", "refused"),
        ("ACCEPT", "champion"),
    ]
    large = first["registered"][0]
    assert (
        large["new"]
        and large["why"] == "the gate's verdict is INFEASIBLE"
        and "layers-4: the gate's verdict is INFEASIBLE" in summary(RunResult.model_validate(first))
    )
    assert json.loads(standing(home).versions["1"]["gate.reasons"])[0].startswith("bytes "), (
        "what was refused is registered with its reason"
    )
    assert second["promotion"]["moves"]["champion"] == "3" and second["promotion"]["moves"]["previous"] == "2"
    assert champion_line(RunResult.model_validate(second)) == f"{NAME}@champion is layers-2, version 3"
    assert third["promotion"]["moves"] == {"challenger": "4"} and third["models"][1]["gate"] == "accepted"
    assert champion_line(RunResult.model_validate(third)) == f"{NAME}@champion stays layers-2, version 3"
    listed = [row["best"] for row in tracker(home).runs(3)]
    assert listed == ["layers-1: accepted, not champion", "layers-2", "layers-3"], (
        "the newest first, each with the standing of its best"
    )


def test_the_evaluation_travels_with_the_version(runs: list[dict[str, Any]], home: Home, tmp_path: Path) -> None:
    found = read_evaluation(Registry(tracker(home), NAME).evaluation("3", tmp_path))
    model = runs[1]["models"][1]
    assert (
        float((found.predictions_SN[0] == found.labels_N).mean()) == model["metrics"]["validation"]["accuracy"]["value"]
    )
    assert found.about["figures"]["bytes"] == model["bytes"] and found.about["candidate"] == "layers-2"
    assert found.rows == standing(home).versions["3"]["rows.sha256"] == standing(home).versions["2"]["rows.sha256"]
    tracker(home).download(NAME, "champion", tmp_path / "pulled")
    assert read_evaluation(tmp_path / "pulled" / "evaluation").about == found.about


@pytest.mark.parametrize("registered", ["now", "before evaluations had a digest", "before folders had one"])
def test_an_evaluation_that_was_changed_with_its_own_checksum_is_not_believed(
    runs: list[dict[str, Any]], home: Home, tmp_path: Path, registered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write the model's files could make the champion look bad, and have a run promote something worse."""
    version = tracker(home).find_version(NAME, "2")
    tags = dict(version.tags)
    for name in {"now": (), "before evaluations had a digest": ("evaluation.sha256",)}.get(
        registered, ("evaluation.sha256", "model.folder.sha256")
    ):
        tags.pop(name)
    find = Tracker.find_version
    old = SimpleNamespace(**{name: getattr(version, name) for name in ("name", "version", "source")}, tags=tags)
    monkeypatch.setattr(
        Tracker,
        "find_version",
        lambda self, name, number: old if (name, number) == (NAME, "2") else find(self, name, number),
    )
    registry = Registry(tracker(home), NAME)
    if registered == "before folders had one":
        with pytest.raises(DataError, match="was registered without a digest of its evaluation, so it is not compared"):
            registry.evaluation("2", tmp_path)
        return
    (tmp_path / "whole").mkdir()
    registry.evaluation("2", tmp_path / "whole")
    file = next(
        home.root.glob(f"mlartifacts/**/{version.source.removeprefix('models:/')}/**/evaluation/evaluation.json")
    )
    judged = file.read_text()
    file.write_text(json.dumps(json.loads(judged) | {"figures": {"bytes": 10**12}}))
    try:
        with pytest.raises(
            EvaluationChanged, match="version 2 differs from the registered one: its files were changed"
        ):
            registry.evaluation("2", tmp_path)
    finally:
        file.write_text(judged)


def shown(home: Home, number: str | None = None, name: str = NAME) -> str:
    from rich.console import Console

    console, found = Console(width=200), Registry(tracker(home), name).read()
    with console.capture() as said:
        show_model(console, name, found) if number is None else show_version(console, name, found, number)
    return said.get()


def in_home(flow: Any, home: Home, monkeypatch: pytest.MonkeyPatch, *given: Any, **named: Any) -> dict[str, Any]:
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", home.own_tracking_uri)
    result: dict[str, Any] = asyncio.run(flow(*given, **named))
    return result


def test_what_stands_there_is_shown(runs: list[dict[str, Any]], home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    page = shown(home)
    assert (
        "layers-2" in page
        and "ACCEPT" in page
        and re.search(r"run run-2 by \S+: ", page)
        and "layers-1, version 4: challenger: " in page
    )
    assert "bytes " in shown(home, "2") and "run run-3" not in shown(home, "2")
    client = tracker(home).client
    client.create_registered_model("other")
    client.set_registered_model_tag(
        "other",
        "decision.000001",
        json.dumps({"n": 1, "at": "then", "kind": "run", "moves": {"champion": [None, "7"]}}),
    )
    assert "other@champion is missing: in the history it is version 7" in shown(home, name="other")
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", home.own_tracking_uri)
    done = subprocess.run(
        [interpreter(), "-m", "flows.cli", "show", f"{NAME}@champion"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and f"{NAME} version 3: layers-2" in done.stdout and "ACCEPT" in done.stdout, (
        done.stderr
    )
    for wrong, said in ((f"{NAME}@best", "has no alias 'best'"), ("nobody", "there is no registered model 'nobody'")):
        with pytest.raises(RegistryError, match=said):
            show(wrong)


def test_a_person_promotes_goes_back_and_cleans_up(
    runs: list[dict[str, Any]], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        GateError, match=f"{NAME} version 1 was not promoted: the gate's verdict is INFEASIBLE; --force"
    ):
        in_home(promote, home, monkeypatch, NAME, "1")
    with pytest.raises(RecipeError, match="give the reason with --reason"):
        in_home(promote, home, monkeypatch, NAME, "1", force=True)
    with pytest.raises(RecipeError, match="choose one of champion, challenger, champion-small, champion-fast"):
        in_home(promote, home, monkeypatch, NAME, "1", to="previous")
    moved = in_home(promote, home, monkeypatch, NAME)["moves"]
    assert {**moved, "champion-fast": "?"} == {
        "previous": "3",
        "champion": "4",
        "champion-small": "4",
        "champion-fast": "?",
        "challenger": None,
    }
    assert in_home(rollback, home, monkeypatch, NAME, reason="too weak")["aliases"]["champion"] == "3"
    found = standing(home)
    assert (
        found.aliases["previous"] == "4"
        and found.aliases["champion-small"] == "3"
        and found.versions["4"]["promotion.state"] == "withdrawn"
    )
    with pytest.raises(RegistryError, match="version 3 is champion, .*a version with an alias cannot be deleted"):
        in_home(delete, home, monkeypatch, NAME, "3")
    assert in_home(delete, home, monkeypatch, NAME, "1")["candidate"] == "layers-4"
    kinds = [entry["kind"] for entry in standing(home).history]
    assert kinds == ["run"] * 3 + ["promote", "promote", "rollback", "delete"], "the refusal is in the history too"
