"""The tracker against a real MLflow on sqlite: runs that always end, and models that are the ones that were judged."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest

from tasks.catalog import TaskSpec
from tasks.contracts import Artifact
from tasks.errors import RegistryError
from tasks.ports.tracking import client, runs, versions
from tasks.ports.tracking.client import summary_line, without_secrets
from tasks.ports.tracking.packer import Packer
from tasks.ports.tracking.run_context import TRAINING_PAGES, DataSource, candidates_page, page_of_run
from tasks.ports.tracking.tracker import Tracker
from tasks.ports.tracking.versions import version_description
from tests.forked import start_fork
from tests.forked.interpreter import interpreter
from tests.forked.strangers import ask_stranger
from tests.report.figures import stated

ROOT = Path(__file__).resolve().parents[3]
TEXT = "the film was very good"
PICTURE = b"<svg xmlns='http://www.w3.org/2000/svg'/>"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    """A tiny classifier as a stage leaves it."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = tmp_path_factory.mktemp("checkpoint")
    model = AutoModelForSequenceClassification.from_pretrained(
        tiny_bert, num_labels=2, id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1}
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


def new_tracker(home: Path, **changes: Any) -> Tracker:
    given = {"experiment": "sst2/tiny", "run_name": "recipe", "tags": {"recipe": "recipe"}} | changes
    return Tracker(f"sqlite:///{home / 'mlflow.db'}", home / "mlartifacts", **given)


@pytest.fixture
def tracker(template: Path, tmp_path: Path) -> Tracker:
    """A tracker on a database of its own, its parent run open."""
    shutil.copyfile(template, tmp_path / "mlflow.db")
    found = new_tracker(tmp_path)
    found.open()
    return found


NUMBERS = itertools.count()
"""Of the stages of one session: each has its own."""


def record(name: str = "distill-predictions", label: str = "small seed 0", **changes: Any) -> SimpleNamespace:
    artifact = Artifact(
        "checkpoint",
        "e" * 64,
        "somewhere",
        1,
        {"train_seconds": 1.5, "scores": {"accuracy": 0.9}, "note": "text", "ok": True},
    )
    values = {
        "number": next(NUMBERS),
        "name": name,
        "label": label,
        "display_name": f"{name}/{label}",
        "key": "k" * 64,
        "task_run": "t",
        "seconds": 2.0,
        "artifact": artifact,
        "state": "completed",
        "cache": "miss",
        "why": "never computed before",
        "figures": {"kwh": 0.25},
        "explanation": {"knobs": {"temperature": 2.0, "matching": {"hidden": 1.0}}},
    } | changes
    return SimpleNamespace(**values)


def everything(tracker: Tracker) -> dict[str, Any]:
    """Return all runs of the experiment by name."""
    return {run.info.run_name: run for run in tracker.client.search_runs([tracker.experiment_id])}


# --- runs -------------------------------------------------------------------------------------------------------------


def test_importing_it_is_light() -> None:
    code = (
        "import sys, tasks.ports.tracking.tracker; print([m for m in ('mlflow', 'torch', 'transformers', "
        "'sqlalchemy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_two_homes_of_one_process_do_not_share_a_registry(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's own variable stays as the user set it: a home without one takes its own database."""
    shutil.copyfile(template, tmp_path / "mlflow.db")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    new_tracker(tmp_path).open()
    assert "MLFLOW_TRACKING_URI" not in os.environ
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://the-users-own:1")
    new_tracker(tmp_path).open()
    assert os.environ["MLFLOW_TRACKING_URI"] == "http://the-users-own:1"


def test_a_stage_becomes_a_child_run_with_knobs_curves_and_facts(tracker: Tracker) -> None:
    stage = record()
    tracker.stage_started(stage)
    for step in range(2500):
        tracker.curve(stage, step, {"loss": 1.0 / (step + 1)})
    tracker.stage_finished(stage)
    tracker.close("FINISHED")
    child = everything(tracker)["1-distill-predictions small seed 0"]
    assert child.info.status == "FINISHED"
    assert child.data.params == {"distill-predictions.temperature": "2.0", "distill-predictions.matching.hidden": "1.0"}
    assert {
        "train_seconds": 1.5,
        "scores.accuracy": 0.9,
        "stage_seconds": 2.0,
        "kwh": 0.25,
    }.items() <= child.data.metrics.items()
    assert "ok" not in child.data.metrics
    wanted = {
        "stage": "distill-predictions",
        "cache": "miss",
        "cache.key": "k" * 64,
        "blob.sha256": "e" * 64,
        "prefect.task_run_id": "t",
    }
    assert wanted.items() <= child.data.tags.items() and child.data.tags["mlflow.parentRunId"] == tracker.parent
    assert len(tracker.client.get_metric_history(child.info.run_id, "loss")) == 2500


def test_a_long_stage_can_be_watched_before_it_ends(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CURVE_SECONDS", 0.0)
    stage = record()
    tracker.stage_started(stage)
    tracker.curve(stage, 1, {"loss": 0.5})
    run, until = tracker.children[stage.number], time.monotonic() + 20
    while not tracker.client.get_run(run).data.metrics and time.monotonic() < until:
        time.sleep(0.02)
    assert tracker.client.get_run(run).data.metrics == {"loss": 0.5}
    tracker.curve(stage, 2, {"loss": 0.4})
    tracker.stage_finished(stage)
    tracker.close("FINISHED")
    assert [point.step for point in tracker.client.get_metric_history(run, "loss")] == [1, 2]


def test_points_that_could_not_be_sent_are_kept(tracker: Tracker) -> None:
    stage = record()
    tracker.curve(stage, 1, {"loss": 0.5})
    with pytest.raises(KeyError):
        tracker.deliver(stage)  # its run has not been started
    assert tracker.points[stage.number] == [("loss", 0.5, 1)]


@pytest.mark.parametrize(("killed", "status"), [(True, "KILLED"), (False, "FAILED")])
def test_a_stage_that_does_not_end_well_says_so(tracker: Tracker, killed: bool, status: str) -> None:
    stage = record(artifact=None)
    tracker.stage_started(stage)
    tracker.stage_failed(stage, "the memory ran out", killed)
    tracker.close(status)
    child = everything(tracker)["1-distill-predictions small seed 0"]
    assert child.info.status == status and child.data.tags["error"] == "the memory ran out"
    assert tracker.runs(10)[0]["status"] == status


def test_closing_ends_every_branch_that_is_still_open(tracker: Tracker) -> None:
    for label in ("one", "two"):
        tracker.stage_started(record(label=label))
    tracker.close("KILLED")
    assert {run.info.status for run in everything(tracker).values()} == {"KILLED"}


def test_names_that_mlflow_refuses_are_mended(tracker: Tracker) -> None:
    stage = record(
        artifact=Artifact("checkpoint", "e" * 64, "", 1, {"rows": {"a(b)?": 3}}),
        explanation={"knobs": {f"k{n}": n for n in range(205)}},
    )
    tracker.stage_started(stage)
    tracker.stage_finished(stage)
    child = everything(tracker)["1-distill-predictions small seed 0"]
    assert child.data.metrics["rows.a_b__"] == 3 and len(child.data.params) == 205


@pytest.mark.parametrize(("way", "status"), [("error", 1), ("term", 143)])
def test_a_process_that_ends_early_leaves_no_run_open(template: Path, tmp_path: Path, way: str, status: int) -> None:
    shutil.copyfile(template, tmp_path / "mlflow.db")
    words = [interpreter(), "-P", "-m", "tests.ports.tracking.abandon", str(tmp_path), way]
    done = subprocess.run(words, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == status, done.stderr.decode()
    reader = new_tracker(tmp_path)
    reader.experiment_id = reader.client.get_experiment_by_name("sst2/tiny").experiment_id
    assert [run.info.status for run in everything(reader).values()] == ["KILLED", "KILLED"]


def test_hits_point_to_the_newest_run_that_made_them_in_two_calls(
    tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fate in ("stage_finished", "stage_finished", "stage_failed"):
        stage = record()
        tracker.stage_started(stage)
        tracker.stage_finished(stage) if fate == "stage_finished" else tracker.stage_failed(stage, "no", False)
        time.sleep(0.01)
    tracker.close("FINISHED")
    good = [run for run in everything(tracker).values() if run.info.status == "FINISHED" and "stage" in run.data.tags]
    newest = max(good, key=lambda run: run.info.start_time).info.run_id
    again = new_tracker(tmp_path)
    again.open()
    calls: list[str] = []
    kind = type(again.client)
    for name in ("search_runs", "log_dict", "log_batch", "create_run", "set_tag", "get_run"):
        real = getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda *given, _real=real, _name=name, **named: (calls.append(_name), _real(*given, **named))[1]
        )
    again.log_stages(
        [record(label=f"{number}", cache="hit") for number in range(29)]
        + [record(key="unknown", cache="hit"), record(cache="miss")]
    )
    assert len(calls) <= 3
    monkeypatch.undo()
    rows = again.recall(again.parent, "stages")["stages"]
    assert [entry["made_by_run"] for entry in rows] == [newest] * 29 + [None, None]
    again.close("FINISHED")


MODELS = [
    stated("teacher", "teacher", latency_ms=40.0),
    stated("4x312", gate="champion"),
    stated("plain", "baseline", speedup=None, retained=None),
]


def test_candidates_become_nested_runs_and_the_winner_is_on_the_parent(tracker: Tracker) -> None:
    tracker.stage_started(record())
    tracker.candidates(MODELS, best="4x312", standing="champion", about={"4x312": "**4x312**: the smallest"})
    runs = everything(tracker)
    parent = runs["recipe"].data
    notes = {name: runs[name].data.tags.get("mlflow.note.content") for name in ("4x312", "plain")}
    assert notes == {"4x312": "**4x312**: the smallest", "plain": None}
    assert parent.tags["winner"] == "4x312" and parent.metrics == runs["4x312"].data.metrics
    assert parent.metrics == pytest.approx(
        {
            "score": 0.912,
            "accuracy": 0.912,
            "retained_pct": 98.1,
            "params_m": 14.350248,
            "size_mb": 57.400992,
            "flops_g": 1.2,
            "latency_ms": 4.321,
            "speedup_x": 9.41,
            "quality_drop_pts": 0.0,
            "compression_x": 1.0,
            "memory_mb": 300.0,
        }
    )
    assert max(map(len, parent.metrics)) <= 16
    assert "speedup_x" not in runs["plain"].data.metrics and runs["plain"].data.tags["role"] == "baseline"
    assert {runs[name].info.status for name in ("teacher", "4x312", "plain")} == {"FINISHED"}
    tracker.close("FINISHED")


def test_runs_are_found_by_kind_task_and_teacher_and_compared_by_parameters_and_data(
    template: Path, tmp_path: Path
) -> None:
    shutil.copyfile(template, tmp_path / "mlflow.db")
    shared = {
        "recipe": "r",
        "task": "sst2",
        "teacher": "bert",
        "mlflow.user": "ann",
        "mlflow.source.name": "limbeck run",
    }
    recipe = {
        "name": "r",
        "teacher": {"floor": None, "epochs": 3},
        "students": [{"name": "4x312", "layers": 4, "seeds": [0, 1]}, {"layers": 6}],
    }
    data = [
        DataSource("sst2", str(tmp_path), "d" * 64, "training"),
        DataSource("axb", "owner/rows", "a" * 64, "judging"),
    ]
    tracker = new_tracker(tmp_path, tags=shared | {"private": "tag"}, recipe=recipe, data=data)
    tracker.open()
    tracker.stage_started(record())
    tracker.candidates(
        MODELS, best="4x312", standing="champion", knobs={"4x312": {"layers": 4, "matching": {"a": 0.5}}}
    )
    tracker.close("FINISHED")
    runs = {run.data.tags["limbeck"] + " " + run.info.run_name: run for run in everything(tracker).values()}
    assert set(runs) == {
        "flow recipe",
        "stage 1-distill-predictions small seed 0",
        "candidate teacher",
        "candidate 4x312",
        "candidate plain",
    }
    assert all(shared.items() <= run.data.tags.items() for run in runs.values())
    assert [name for name, run in runs.items() if "private" in run.data.tags] == ["flow recipe"]
    assert runs["flow recipe"].data.params == {
        "name": "r",
        "teacher.epochs": "3",
        "students.4x312.name": "4x312",
        "students.4x312.layers": "4",
        "students.4x312.seeds": "0, 1",
        "students.2.layers": "6",
    }
    small = runs["candidate 4x312"]
    assert small.data.params == {"layers": "4", "matching.a": "0.5"}
    for run in (runs["flow recipe"], small):
        read = {one.dataset.name: (one.dataset, one.tags[0].value) for one in run.inputs.dataset_inputs}
        assert read["sst2"][1] == "training" and json.loads(read["sst2"][0].source) == {"uri": str(tmp_path)}
        assert (read["axb"][0].source_type, read["axb"][0].digest) == ("hugging_face", "a" * 8)
    wanted = parse_qs(candidates_page("http://h", "1", tracker.parent).partition("?")[2])["searchFilter"][0]
    found = tracker.client.search_runs([tracker.experiment_id], wanted)
    assert {run.info.run_name for run in found} == {"teacher", "4x312", "plain"}, "the link lists no stages"


def test_a_worker_elsewhere_gives_its_stage_the_tags_of_the_run(tracker: Tracker, tmp_path: Path) -> None:
    tracker.client.set_tag(tracker.parent, "teacher", "bert")
    place = tracker.lend_run()
    worker = new_tracker(tmp_path, tags={})
    worker.join(place["experiment"], place["run"], place["number"])
    worker.stage_started(record())
    worker.close("FINISHED")
    tracker.close("FINISHED")
    assert everything(tracker)["1-distill-predictions small seed 0"].data.tags["teacher"] == "bert"


@pytest.mark.parametrize("letters", [10, 6000])
def test_the_description_of_a_version_is_its_line_and_its_card(letters: int) -> None:
    card = f"---\nlicense: mit\n---\n\n# The card\n\n{'a' * letters}\nend\n"
    text = version_description("4x312: 98.1% of the teacher", card)
    assert summary_line(text) == "4x312: 98.1% of the teacher" and "license" not in text and "# The card" in text
    assert text.endswith("\nend" if letters == 10 else "continues in README.md of the model's folder.")
    assert len(text) <= 5000


def test_a_candidate_carries_what_was_said_of_it_beside_its_baseline(tracker: Tracker) -> None:
    beats = {"validation": {"value": 0.02, "low": 0.01, "high": 0.03, "p": 0.001, "seeds": [3, 3], "verdict": "better"}}
    level = {
        "validation": {
            "value": 0.001,
            "low": -0.01,
            "high": 0.012,
            "p": 0.8,
            "seeds": [3, 3],
            "verdict": "inside the noise",
        }
    }
    small = stated(
        "4x312",
        gate="champion",
        against={"plain": beats, "longer": level},
        deviation={"validation": {"accuracy": 0.004}},
    )
    tracker.stage_started(record())
    tracker.candidates([MODELS[0], small, MODELS[2]], best="4x312", standing="champion")
    runs = everything(tracker)
    assert (
        runs["4x312"].data.tags["against"] == "better: plain; inside the noise: longer"
        and "against" not in runs["plain"].data.tags
    )
    leads = {name: value for name, value in runs["4x312"].data.metrics.items() if name.startswith(("lead", "score_"))}
    assert leads == pytest.approx(
        {"lead_pts": 0.1, "lead_low_pts": -1.0, "lead_high_pts": 1.2, "score_deviation": 0.004}
    )
    assert max(map(len, leads)) <= 16
    tracker.close("FINISHED")


def test_an_unsteady_speed_is_no_figure_that_a_chooser_sorts_by(tracker: Tracker) -> None:
    shaky = stated("4x312", unsteady="after 40 calls", latency_high_ms=5.0, cost={"joules": {"value": 0.2}})
    tracker.stage_started(record())
    tracker.candidates([MODELS[0], shaky, MODELS[2]], best="4x312", standing="refused")
    found = everything(tracker)["4x312"].data
    assert not {"latency_ms", "speedup_x", "joules"} & set(found.metrics) and found.tags["speed"] == "unsteady"
    assert found.metrics["latency_spread"] == pytest.approx(100 * (5 / 4.321 - 1))
    tracker.close("FINISHED")


def test_a_run_of_hits_alone_has_no_nested_runs(tracker: Tracker) -> None:
    tracker.candidates(MODELS, best="4x312", standing="champion")
    tracker.log_stages([record(cache="hit")])
    tracker.close("FINISHED")
    assert list(everything(tracker)) == ["recipe"] and tracker.runs(1)[0]["best"] == "4x312"


@pytest.mark.parametrize(("gate", "standing"), [("refused", "refused"), ("accepted", "accepted, not champion")])
def test_where_nobody_is_champion_the_best_still_shows_its_figures_and_its_standing(
    tracker: Tracker, gate: str, standing: str
) -> None:
    """By how much a goal was missed is seen on the run itself, and nobody takes the best for a winner."""
    tracker.candidates(
        [MODELS[0], stated("2x128", gate="refused", latency_ms=1.0), stated("4x312", gate=gate)],
        best="4x312",
        standing=standing,
    )
    parent = everything(tracker)["recipe"].data
    assert (parent.tags["winner"], parent.tags["best"], parent.tags["standing"]) == ("none", "4x312", standing)
    assert parent.metrics["latency_ms"] == 4.321 and parent.metrics["score"] == 0.912
    [listed] = tracker.runs(1)
    assert listed["best"] == f"4x312: {standing}"
    assert listed["figures"] == pytest.approx(
        {"score": 0.912, "retained_pct": 98.1, "speedup_x": 9.41, "size_mb": 57.400992}
    )
    tracker.close("FINISHED")


def test_energy_and_prices_are_among_the_figures_that_decide_and_what_is_unknown_is_no_zero(tracker: Tracker) -> None:
    known = {"joules": {"value": 0.21}, "dollars_on_demand": {"value": 0.42}, "dollars_spot": {"value": 0.13}}
    unknown = {
        "joules": {"value": None},
        "dollars_on_demand": {"value": None},
        "dollars_spot": {"value": None, "at_least": 0.0},
    }
    tracker.stage_started(record())
    tracker.candidates(
        [MODELS[0], stated("4x312", gate="champion", cost=known), stated("2x128", cost=unknown)],
        best="4x312",
        standing="champion",
    )
    runs, named = everything(tracker), ("joules", "made_dollars", "made_dollar_spot")
    for of in ("recipe", "4x312"):
        assert {name: runs[of].data.metrics[name] for name in named} == {
            "joules": 0.21,
            "made_dollars": 0.42,
            "made_dollar_spot": 0.13,
        }
    assert not set(named) & set(runs["2x128"].data.metrics) and max(map(len, named)) <= 16
    tracker.close("FINISHED")


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9", "sqlite:///{file}/mlflow.db", "sqlite:///{folder}"])
def test_a_tracker_that_is_not_there_is_said_at_once(tmp_path: Path, uri: str) -> None:
    (tmp_path / "file").write_text("")
    given, started = uri.format(file=tmp_path / "file", folder=tmp_path), time.monotonic()
    with pytest.raises(RegistryError, match="no MLflow server at|cannot be written") as caught:
        Tracker(given, None, experiment="a/b").open()
    assert time.monotonic() - started < 6 and "\n" not in str(caught.value)


@pytest.mark.parametrize("uri", ["http://ann:secret@127.0.0.1:9", "postgresql://ann:secret@127.0.0.1:9/mlflow"])
def test_an_address_is_told_without_its_password(uri: str) -> None:
    told = without_secrets(f"MLflow at {uri} could not start")
    assert "secret" not in told and "ann" not in told and "127.0.0.1:9" in told


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database" * 100)
    with pytest.raises(RegistryError, match="could not start a run") as caught:
        new_tracker(tmp_path).open()
    assert "\n" not in str(caught.value)


# --- registry ---------------------------------------------------------------------------------------------------------

NAME = "sst2-tiny"
TASK = TaskSpec(name="tiny")
PAIRED = TaskSpec(name="paired", kind="regression", pair="other", metrics=("pearson",), headline="pearson")


def put(
    tracker: Tracker, checkpoint: Path, workspace: Path, *, alias: str | None = None, name: str = NAME, **tags: str
) -> dict[str, Any]:
    labels = {"checkpoint.sha256": "c" * 64, "gate": "accepted", "quality": "0.9120"} | tags
    with Packer(workspace, start_fork) as packer:
        return tracker.register(
            name,
            "4x312",
            lambda: checkpoint,
            card="# The card\n",
            tags=labels,
            description="4x312: 98.1% of the teacher",
            task=TASK,
            packer=packer,
            alias=alias,
        )


@pytest.fixture(scope="session")
def registered(template: Path, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one registered model, which is champion; tests that change something copy it."""
    home = tmp_path_factory.mktemp("registered")
    shutil.copyfile(template, home / "mlflow.db")
    tracker = new_tracker(home)
    tracker.open()
    assert put(tracker, checkpoint, home / "work", alias="champion") == {"version": "1", "new": True}
    tracker.close("FINISHED")
    return home


def stored(home: Path) -> Path:
    """Return the folder in which MLflow keeps the only model."""
    [found] = (home / "mlartifacts").rglob("MLmodel")
    return found.parent


def test_the_stored_model_holds_no_pickle_and_no_path_and_leaves_nothing_behind(
    registered: Path, checkpoint: Path
) -> None:
    files = [path for path in stored(registered).rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix in {".bin", ".pt", ".pkl", ".pickle"}]
    for path in files:
        if path.suffix != ".safetensors":
            assert not [
                place for place in (str(registered), str(checkpoint), str(ROOT)) if place in path.read_text()
            ], path
    assert "torch==" in (stored(registered) / "requirements.txt").read_text()
    assert (stored(registered) / "README.md").read_text() == "# The card\n"
    assert not [path for path in (registered / "work").iterdir() if path.is_dir()]


CLEAN = """
import json, sys
import mlflow, torch
mlflow.set_tracking_uri(sys.argv[1])
pipe = mlflow.transformers.load_model("models:/sst2-tiny@champion")
inputs = pipe.tokenizer(sys.argv[2], return_tensors="pt")
with torch.no_grad():
    print(json.dumps({"logits": pipe.model(**inputs).logits.tolist(), "answer": pipe(sys.argv[2]), "ours": "tasks" in sys.modules}))
"""  # noqa: E501


def test_others_load_the_champion_in_a_clean_process_with_equal_logits(
    registered: Path, checkpoint: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    done = ask_stranger(CLEAN, f"sqlite:///{registered / 'mlflow.db'}", TEXT, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    model, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(checkpoint),
        AutoTokenizer.from_pretrained(checkpoint),
    )
    with torch.no_grad():
        logits = model(**tokenizer(TEXT, return_tensors="pt")).logits
    assert torch.equal(torch.tensor(answer["logits"]), logits)
    assert not answer["ours"] and answer["answer"][0]["label"] in {"good", "bad"}


def moved(registered: Path, tmp_path: Path) -> Path:
    """Copy a whole home, so that a test may change or spoil it; MLflow's addresses are absolute and move along."""
    home = tmp_path / "home"
    shutil.copytree(registered, home)
    places = (
        ("experiments", "artifact_location"),
        ("runs", "artifact_uri"),
        ("logged_models", "artifact_location"),
        ("model_versions", "storage_location"),
    )
    with contextlib.closing(sqlite3.connect(home / "mlflow.db")) as database:
        for table, column in places:
            database.execute(f"update {table} set {column} = replace({column}, ?, ?)", (str(registered), str(home)))
        database.commit()
    return home


def copied(registered: Path, tmp_path: Path) -> Tracker:
    """Return an open tracker on a registry of its own."""
    tracker = new_tracker(moved(registered, tmp_path))
    tracker.open()
    return tracker


def test_the_same_weights_with_the_same_verdict_are_registered_once(
    registered: Path, checkpoint: Path, tmp_path: Path
) -> None:
    tracker = copied(registered, tmp_path)
    assert put(tracker, checkpoint, tmp_path / "work", alias="champion") == {"version": "1", "new": False}
    assert put(tracker, checkpoint, tmp_path / "work", gate="refused") == {"version": "2", "new": True}
    assert [(entry["version"], entry["gate"], entry["alias"]) for entry in tracker.versions(NAME)] == [
        ("2", "refused", ""),
        ("1", "accepted", "champion"),
    ]
    tracker.close("FINISHED")


def test_a_version_says_what_a_chooser_needs_and_which_run_made_it(registered: Path, checkpoint: Path) -> None:
    tracker = new_tracker(registered)
    entry = tracker.versions(NAME)[0]
    digest = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
    assert (
        entry["description"] == "4x312: 98.1% of the teacher"
        and entry["quality"] == "0.9120"
        and entry["model.sha256"] == digest
    )
    version = tracker.client.get_model_version(NAME, "1")
    assert version.description == "4x312: 98.1% of the teacher\n\n# The card"
    assert version.run_id == tracker.runs(1)[0]["run"] and version.source.startswith("models:/m-")
    model = tracker.client.get_logged_model(version.source.removeprefix("models:/"))
    assert str(model.status) == "READY" and model.name == "4x312" and model.source_run_id == version.run_id
    assert [output.model_id for output in tracker.client.get_run(version.run_id).outputs.model_outputs] == [
        model.model_id
    ]


def test_what_did_not_arrive_whole_is_not_registered(
    registered: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = copied(registered, tmp_path)
    real = type(tracker.client).log_model_artifacts

    def lossy(client: Any, model: str, folder: str) -> None:
        weights = Path(folder, "model", "model.safetensors")
        weights.write_bytes(weights.read_bytes()[:-1])
        real(client, model, folder)

    monkeypatch.setattr(type(tracker.client), "log_model_artifacts", lossy)
    with pytest.raises(RegistryError, match="not the evaluated ones"):
        put(tracker, checkpoint, tmp_path / "work", name="other")
    assert {entry["name"] for entry in tracker.models()} == {NAME}
    statuses = [str(model.status) for model in tracker.client.search_logged_models([tracker.experiment_id])]
    assert sorted(statuses) == ["FAILED", "READY"]
    tracker.close("FAILED")


@pytest.mark.parametrize("name", ["a/b", "a:b", "it's", "", "-x"])
def test_a_name_that_mlflow_could_not_carry_is_refused(
    tracker: Tracker, checkpoint: Path, tmp_path: Path, name: str
) -> None:
    with pytest.raises(RegistryError, match="cannot name a registered model"):
        put(tracker, checkpoint, tmp_path / "work", name=name)
    tracker.close("FAILED")


def test_one_process_of_a_home_decides_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "locks"))
    monkeypatch.setattr(versions, "LOCK_SECONDS", 0.3)
    with versions.only_one("name"):
        pass
    [lock] = (tmp_path / "locks" / "cache" / "locks").iterdir()
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(RegistryError, match="another process"), versions.only_one("name"):
            pass


def test_only_one_lets_one_thread_in_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path))
    inside, most = [0], [0]

    def visit() -> None:
        with versions.only_one("name"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.01)
            inside[0] -= 1

    threads = [threading.Thread(target=visit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


PAIRS = """
import json, sys
import mlflow
pair = {"text": "the film", "text_pair": "was good"}
found = mlflow.pyfunc.load_model(sys.argv[1])
pipe = mlflow.transformers.load_model(sys.argv[1])
logits = pipe.model(**pipe.tokenizer(pair["text"], pair["text_pair"], return_tensors="pt")).logits
print(json.dumps({"inputs": found.metadata.signature.inputs.input_names(), "score": found.predict([pair]).score[0], "logit": logits.item()}))
"""  # noqa: E501


def test_pairs_go_in_by_name_and_a_regression_answers_with_its_logit(tiny_bert: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(tiny_bert, num_labels=1, problem_type="regression")
    model.classifier.bias.data.fill_(3.3)  # far outside of what a sigmoid could answer
    model.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "model")
    with Packer(tmp_path, start_fork) as packer:
        package = packer.pack(tmp_path / "model", "package", card="", task=PAIRED)
    assert json.loads((package / "input_example.json").read_text()) == [
        {"text": "first text", "text_pair": "second text"}
    ]
    done = ask_stranger(PAIRS, str(package), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert (
        answer["inputs"] == ["text", "text_pair"]
        and answer["score"] == pytest.approx(answer["logit"], abs=1e-5)
        and answer["score"] > 2
    )


# --- pulling ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["champion", "1", 1])
def test_a_pulled_model_is_one_flat_folder_with_the_judged_weights(
    registered: Path, checkpoint: Path, tmp_path: Path, which: str | int
) -> None:
    assert new_tracker(registered).download(NAME, which, tmp_path / "deep" / "model")["version"] == "1"
    names = {path.name for path in (tmp_path / "deep" / "model").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert (tmp_path / "deep" / "model" / "model.safetensors").read_bytes() == (
        checkpoint / "model.safetensors"
    ).read_bytes()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model"]


def damaged(registered: Path, tmp_path: Path) -> tuple[Tracker, Path]:
    """Return a reader, and its stored files, which may be spoilt."""
    home = moved(registered, tmp_path)
    return new_tracker(home), stored(home)


def test_one_flipped_byte_is_refused_and_nothing_is_written(registered: Path, tmp_path: Path) -> None:
    tracker, package = damaged(registered, tmp_path)
    weights = package / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(RegistryError, match="not the evaluated ones; nothing was written"):
        tracker.download(NAME, "champion", tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("place", ["model/pytorch_model.bin", "components/tokenizer/extra.pkl", "model/modeling.py"])
def test_a_file_that_may_carry_code_is_refused(registered: Path, tmp_path: Path, place: str) -> None:
    tracker, package = damaged(registered, tmp_path)
    (package / place).write_bytes(b"x")
    with pytest.raises(RegistryError, match="may contain code"):
        tracker.download(NAME, "champion", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_package_without_a_tokenizer_is_one_sentence(registered: Path, tmp_path: Path) -> None:
    tracker, package = damaged(registered, tmp_path)
    shutil.rmtree(package / "components")
    with pytest.raises(RegistryError, match="is incomplete"):
        tracker.download(NAME, "champion", tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_folder_with_anything_in_it_is_never_touched(registered: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    for target in (tmp_path, tmp_path / "mine.txt"):
        with pytest.raises(RegistryError, match="is not empty|is a file"):
            new_tracker(registered).download(NAME, "champion", target)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("name", "alias", "said"),
    [("sst3", "champion", "known are sst2-tiny"), (NAME, "best", "it has champion"), (NAME, "7", "it has 1")],
)
def test_what_is_unknown_lists_what_is_known(
    registered: Path, tmp_path: Path, name: str, alias: str, said: str
) -> None:
    with pytest.raises(RegistryError, match=said):
        new_tracker(registered).download(name, alias, tmp_path / "model")


# --- a server ---------------------------------------------------------------------------------------------------------


def test_artifacts_go_through_mlflow_unless_somebody_says_otherwise(
    template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own client would ask it for addresses of an S3 server that perhaps only MLflow reaches."""
    upload, download = (f"MLFLOW_ENABLE_PROXY_MULTIPART_{way}" for way in ("UPLOAD", "DOWNLOAD"))
    monkeypatch.setenv(upload, "true")
    monkeypatch.delenv(download, raising=False)
    assert Tracker(f"sqlite:///{template}", None).client
    assert (os.environ[upload], os.environ[download]) == ("true", "false")


def test_everything_works_against_a_server_too(template: Path, checkpoint: Path, tmp_path: Path) -> None:
    shutil.copyfile(template, tmp_path / "mlflow.db")
    port = str(20_000 + os.getpid() % 20_000)
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        f"sqlite:///{tmp_path / 'mlflow.db'}",
        "--artifacts-destination",
        str(tmp_path / "remote"),
        "--port",
        port,
        "--workers",
        "1",
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    server = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}, **quiet
    )
    try:
        tracker = Tracker(
            f"http://127.0.0.1:{port}", tmp_path / "mlartifacts", experiment="sst2/tiny", run_name="recipe"
        )
        wait_for(tracker.uri)
        tracker.open()
        assert put(tracker, checkpoint, tmp_path / "work", alias="champion") == {"version": "1", "new": True}
        assert put(tracker, checkpoint, tmp_path / "work", alias="champion") == {"version": "1", "new": False}
        tracker.download(NAME, "champion", tmp_path / "model")
        tracker.close("FINISHED")
        tracker.client.log_text(tracker.parent, "<html>", "report/report.html")
        (tmp_path / "pareto.svg").write_bytes(PICTURE)
        tracker.client.log_artifact(tracker.parent, str(tmp_path / "pareto.svg"), "report")
        pages = tracker.report_files()
        with urllib.request.urlopen(pages["pareto.svg"]) as answer:
            assert answer.read() == PICTURE, "a browser can show it by this address"
        assert pages["report.html"].endswith(f"/{tracker.parent}/artifacts/report/report.html?{TRAINING_PAGES}")
        links = tracker.urls(None)
        assert links["run"] == page_of_run(tracker.uri, tracker.experiment_id, tracker.parent)
        assert links["registry"].endswith(f"/#/models?{TRAINING_PAGES}")
        assert tracker.runs(1)[0]["status"] == "FINISHED"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()


def wait_for(uri: str) -> None:
    """Wait until a server answers."""
    until = time.monotonic() + 90
    while True:
        try:
            return client.require_reachable(uri)
        except RegistryError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
