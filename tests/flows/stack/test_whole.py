"""The whole of it as a team uses it: the stack is up, everything is deployed, and Prefect's own command starts runs
that train, while what they need is killed.

Slow: minutes. What each server's death does to a run that only waits is in test_live.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from flows.stack.databases import sql
from flows.stack.services import s3_environment
from tasks.ports.machine import device_class
from tasks.ports.store.bucket import Bucket
from tasks.ports.store.open import open_store
from tasks.recipe.recipe import Recipe
from tests.flows.stack.running import Running, eventually
from tests.flows.stack.test_live import pytestmark
from tests.flows.test_compress import FAST, recipe_for

__all__ = ["pytestmark"]
PATIENCE = 1200.0
LONG = {"steps": 4000, "evaluations": 1, "checkpoint_minutes": 0.02}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    stack = Running()
    try:
        stack.up()
        done = stack.limbeck("deploy", "--gpus", "2")
        assert done.returncode == 0, done.stdout + done.stderr
        yield stack
    finally:
        stack.remove()


@pytest.fixture(scope="module")
def bert(running: Running, tiny_bert: Path) -> Path:
    """The teacher in a folder that the user of the workers can enter."""
    return readable(tiny_bert, running.root / "bert")


@pytest.fixture(scope="module")
def rows(running: Running, tiny_rows: Path) -> Path:
    """The table in a folder that the user of the workers can enter."""
    return readable(tiny_rows.parent, running.root / "rows") / tiny_rows.name


def readable(source: Path, to: Path) -> Path:
    """Copy a folder to where every user can read it."""
    shutil.copytree(source, to)
    for one in (to, *to.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)
    return to


HALF = ({"name": "half", "layers": 2, "stages": []},)


def recipe(bert: Path, rows: Path, name: str, students: Sequence[Any] = HALF, **teacher: Any) -> Recipe:
    """Return a recipe, usually of one student; one core everywhere, so that sums are added up in one order."""
    gate = {"criteria": [{"metric": "parameters", "at_most": 1e9}], "register_as": name, "too_good": 1.0}
    return recipe_for(
        bert,
        rows,
        name=name,
        corpus=None,
        general_distillation=None,
        augmentation=None,
        layer_dropping=None,
        gate=gate,
        resources={"cores": 1, "threads_alone": 1},
        task_distillation={"prediction": FAST},
        students=list(students),
        teacher={"model": str(bert), "floor": 0.0, **FAST, **teacher},
    )


def start(running: Running, wanted: Recipe) -> str:
    """Start the deployed flow by Prefect's command; return the run."""
    words = [
        "deployment",
        "run",
        "compress/own-recipe",
        "--params",
        json.dumps({"recipe": wanted.model_dump(mode="json", exclude_unset=True)}),
    ]
    said = running.prefect(*words)
    return re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", said)[0]


def ended(running: Running, run: str) -> str:
    """Wait for the very end of a run: one that crashed comes back."""
    eventually(
        lambda: running.state(run) in ("COMPLETED", "FAILED", "CANCELLED"),
        f"run {run} did not end: {running.state(run)}",
        PATIENCE,
    )
    return str(running.ask(f"flow_runs/{run}")["state"])


def stages_sent(running: Running, run: str) -> list[str]:
    """Return the stages that a run had made by other workers."""
    tasks = [task["id"] for task in running.ask("task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})]
    found = running.ask("flow_runs/filter", {"flow_runs": {"parent_task_run_id": {"any_": tasks}}}) if tasks else []
    return sorted(one["name"] for one in found)


def test_deploying_again_changes_nothing(running: Running) -> None:
    done = running.limbeck("deploy")
    assert (
        done.returncode == 0
        and "unchanged" in done.stdout
        and "created" not in done.stdout
        and "updated" not in done.stdout
    ), done.stdout


def test_a_deployed_run_ends_with_a_registered_model(running: Running, bert: Path, rows: Path, tmp_path: Path) -> None:
    stack, secret = running.stack, running.secret
    run = start(running, recipe(bert, rows, "whole"))
    assert "COMPLETED" in ended(running, run), running.log("worker-cpu")[-3000:]
    assert sql(stack, secret, f"select state_type from flow_run where id = '{run}'", "prefect") == "COMPLETED"
    assert (
        sql(stack, secret, "select alias from registered_model_aliases where name = 'whole' and version = 1", "mlflow")
        .splitlines()
        .count("champion")
        == 1
    )
    artifacts = [
        entry.name for entry in Bucket(stack.artifacts, settings=s3_environment(stack, secret, "MLFLOW")).entries("")
    ]
    assert [name for name in artifacts if name.endswith("model.safetensors")], artifacts
    results = [
        entry.name
        for entry in Bucket(stack.store, settings=s3_environment(stack, secret, "STORE")).entries("manifests/")
    ]
    assert len(results) > 5, results
    assert running.limbeck("pull", "whole@champion", str(tmp_path / "pulled")).returncode == 0
    assert (tmp_path / "pulled" / "model.safetensors").is_file()
    eventually(
        lambda: "score whole 1" in [one["name"] for one in running.ask("flow_runs/filter", {"limit": 50})],
        "registering started no scoring",
        PATIENCE,
    )


def at_once(runs: list[Any]) -> int:
    """Return the largest number of flow runs that were running in one moment."""
    moments = [(one["start_time"], 1) for one in runs] + [(one["end_time"], -1) for one in runs]
    return max(accumulate(change for _, change in sorted(moments)))


def test_trainings_go_to_the_gpu_pool_two_at_a_time_and_cached_ones_nowhere(
    running: Running, bert: Path, rows: Path
) -> None:
    """Nothing but the words of the documents: up, deploy --gpus 2, and a run of a deployment."""
    said = running.limbeck("doctor").stdout
    assert f"in the pool gpu-local, on {device_class()}, 2 at once" in said, said
    students = [{"name": name, "layers": layers, "stages": []} for name, layers in (("a", 1), ("b", 2), ("c", 3))]
    wanted = recipe(bert, rows, "sent", students, seed=5)
    run = start(running, wanted)
    assert "COMPLETED" in ended(running, run), (
        running.log("worker-cpu")[-3000:] + running.log("worker-gpu-local")[-3000:]
    )
    trained = [f"distill-predictions/{name}" for name in "abc"]
    assert stages_sent(running, run) == ["answer-rows", *trained, "finetune-teacher"]
    assert running.ask(f"flow_runs/{run}")["work_pool_name"] == "cpu"
    in_pool = running.ask("flow_runs/filter", {"work_pools": {"name": {"any_": ["gpu-local"]}}})
    ours = [one for one in in_pool if one["name"] in trained]
    assert len(ours) == 3 and at_once(in_pool) <= 2, [(one["name"], one["start_time"], one["end_time"]) for one in ours]
    assert "stages that run models go to the work pool gpu-local" in running.log("worker-cpu")
    again = start(running, wanted)
    assert "COMPLETED" in ended(running, again)
    assert stages_sent(running, again) == [], "a run of hits starts nothing"


def test_cancel_in_prefect_ends_a_run_and_its_training_in_the_gpu_pool(
    running: Running, bert: Path, rows: Path
) -> None:
    """By what the button of the page sends: run, stage, and the tasks of both are Cancelled, without a traceback."""
    before = running.log(TRAINS).count("steps, loss")
    run = start(running, recipe(bert, rows, "cancelled", seed=6, **LONG))
    eventually(lambda: running.log(TRAINS).count("steps, loss") > before, "it does not train", PATIENCE)
    logs = {name: len(running.log(name)) for name in ("worker-cpu", TRAINS)}
    running.ask(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
    assert "CANCELLED" in ended(running, run)
    tasks = running.ask("task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
    (stage,) = running.ask(
        "flow_runs/filter", {"flow_runs": {"parent_task_run_id": {"any_": [task["id"] for task in tasks]}}}
    )
    eventually(lambda: running.state(stage["id"]) == "CANCELLED", "its stage goes on", PATIENCE)
    tasks += running.ask("task_runs/filter", {"flow_runs": {"id": {"any_": [stage["id"]]}}})
    states = {task["name"]: task["state_type"] for task in tasks}
    assert states.pop("prepare-rows") == "COMPLETED" and set(states.values()) == {"CANCELLED"}, states
    for name, length in logs.items():
        said = running.log(name)[length:]
        assert "Traceback" not in said[said.find("Stopped: its run was cancelled") :], said


TRAINS = "worker-gpu-local"
"""The worker that stages which run models are sent to."""


def gone(process: psutil.Process) -> None:
    """Kill a process and all that it started, as a machine that dies does."""
    for one in [process, *process.children(recursive=True)]:
        one.kill()


KILLED = {
    "the worker of runs": ["worker-cpu"],
    "the machine of runs": ["worker-cpu"],
    "the GPU worker": ["worker-gpu-local"],
    "the GPU machine": ["worker-gpu-local"],
    "both workers": ["worker-cpu", "worker-gpu-local"],
    "postgres": ["postgres"],
    "redis": ["redis"],
    "an API server": ["api-1"],
    "the services": ["services"],
    "the proxy": ["proxy"],
    "MLflow": ["mlflow"],
    "the S3 server": ["radosgw"],
    "PostgreSQL and the worker of runs": ["postgres", "worker-cpu"],
    "both API servers and the GPU worker": ["api-1", "api-2", "worker-gpu-local"],
    "MLflow, the S3 server and the GPU machine": ["mlflow", "radosgw", "worker-gpu-local"],
}
"""Processes of the stack; a machine takes with it all that its worker has started."""


@pytest.mark.parametrize("killed", KILLED)
def test_a_run_that_trains_survives(
    killed: str,
    running: Running,
    prefect_server: None,
    bert: Path,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And makes what nobody's death would have changed."""
    wanted = recipe(bert, rows, f"survives-{[*KILLED].index(killed)}", seed=100 + [*KILLED].index(killed), **LONG)
    before = running.log(TRAINS).count("steps, loss")
    run = start(running, wanted)
    eventually(lambda: running.log(TRAINS).count("steps, loss") > before, "it does not train", PATIENCE)
    eventually(lambda: bool(checkpoints(running)), "it saves nothing", PATIENCE)
    resumed, began = running.log(TRAINS).count("resuming at step"), time.monotonic()
    for name in KILLED[killed]:
        if "machine" in killed and name.startswith("worker"):
            gone(psutil.Process(running.pid(name)))
        else:
            os.kill(running.pid(name), signal.SIGKILL)
    assert "COMPLETED" in ended(running, run), running.log("worker-cpu")[-3000:] + running.log(TRAINS)[-3000:]
    if "worker-cpu" in KILLED[killed]:
        # On a busy machine the second one may miss its heartbeats, and be run again as well.
        assert running.ask(f"flow_runs/{run}")["run_count"] >= 2
    if TRAINS in KILLED[killed]:
        # The process of a stage may outlive its worker, and end before it is known to be lost; not its machine.
        least = 1 if "machine" in killed else 0
        found = running.log(TRAINS).count("resuming at step") - resumed
        assert least <= found <= 1, running.log(TRAINS)[-3000:]
    print(f"FIGURE {killed} killed under training: the run completed {time.monotonic() - began:.0f} s later")
    ours = made(running, monkeypatch)
    undisturbed = run_recipe(wanted, home=Home(tmp_path / "embedded").create())
    for row in undisturbed["manifest"]["stages"]:
        assert row["measured"] or ours[row["key"]] == row["sha256"], row


def checkpoints(running: Running) -> list[str]:
    """Return what is kept of training that goes on."""
    found = Bucket(running.stack.store, settings=s3_environment(running.stack, running.secret, "STORE")).entries(
        "checkpoints/"
    )
    return [entry.name for entry in found]


def made(running: Running, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the digests in the stack's store, by key."""
    for name, value in s3_environment(running.stack, running.secret, "STORE").items():
        monkeypatch.setenv(name, value)
    return {
        manifest["key"]: manifest["sha256"]
        for manifest in open_store(running.stack.store, running.root / "seen").manifests()
    }
