"""Threads and processes: fixed numbers, in the key of what they add up, never read from the machine. Nothing runs
here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from flows.cli.reproduce import recipe_again
from flows.cli.runner import planned_records
from flows.home import Home
from flows.run import opening as run
from tasks.recipe.running import THREADS_ALONE, Resources
from tasks.results.record import RunManifest
from tests.flows.test_compress import recipe_for

ALONE = {"pretrain-base", "finetune-teacher", "answer-rows", "record-signals", "distill-general", "measure-similarity"}
BRANCH = {
    "augment-text",
    "distill-layers",
    "distill-predictions",
    "measure-contributions",
    "drop-layers",
    "score-model",
    "export-onnx",
    "quantize-onnx",
}
TOGETHER = {"finetune-teacher", "distill-general", "distill-layers", "distill-predictions", "drop-layers"}
SINGLE = {"prepare-rows", "prepare-corpus", "compare-corpus", "inspect-answers", "contrast-models"}


@pytest.fixture
def plan(tiny_bert: Path, tiny_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what plans a recipe that has nearly all stages, on a machine with so many cores: its stages by name."""
    home = Home(tmp_path / "home").create()
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    monkeypatch.delenv("LIMBECK_PROCESSES", raising=False)
    whole = {"exports": {"formats": ["onnx", "int8"]}}

    def of(cores: int, /, **resources: Any) -> dict[str, Any]:
        monkeypatch.setattr(run, "available_cores", lambda: cores)
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        records = planned_records(recipe_for(tiny_bert, tiny_rows, resources=resources, **whole), home)
        return {record.display_name: record for record in records}

    return of


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Return the names of the stages whose keys differ; those that follow differ only once these have run."""
    assert before.keys() == after.keys() and len(before) > 10
    differs = {before[shown].name for shown in before if before[shown].key != after[shown].key}
    return differs - {"measure-speed"}  # keyed by its very machine


def test_a_plan_on_a_laptop_and_a_worker_with_other_cores_have_the_same_keys_and_threads(plan: Any) -> None:
    here = plan(1)
    for cores in (2, 16):
        there = plan(cores)
        assert not changed(here, there)
        assert {shown: record.threads for shown, record in here.items()} == {
            shown: record.threads for shown, record in there.items()
        }
    assert here["finetune-teacher"].threads == THREADS_ALONE and here["finetune-teacher"].cores == 1
    assert plan(16, cores=3)["finetune-teacher"].cores == 3, "no more slots than there are"
    assert plan(16)["finetune-teacher"].cores == THREADS_ALONE and plan(16)["measure-speed/teacher"].cores == 16
    assert not changed(here, plan(16, cores=3)), "how many cores a run may hold decides nothing"


def test_another_number_of_threads_is_another_key_where_threads_add_up(plan: Any) -> None:
    before = plan(2)
    names = {record.name for record in before.values()}
    assert names <= ALONE | BRANCH | SINGLE | {"measure-speed"} and {"prepare-rows", "prepare-corpus"} <= names
    assert changed(before, plan(2, threads=2)) == BRANCH & names
    assert changed(before, plan(2, threads_alone=1)) == ALONE & names
    assert before["finetune-teacher"].explanation["threads"] == THREADS_ALONE


def test_several_processes_have_keys_of_their_own(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan(2)
    monkeypatch.setenv("LIMBECK_PROCESSES", "2")
    after = plan(2)
    assert changed(before, after) == TOGETHER
    assert (
        "processes" not in before["finetune-teacher"].explanation
        and after["finetune-teacher"].explanation["processes"] == 2
    )
    assert after["finetune-teacher"].threads == before["finetune-teacher"].threads, (
        "each has the threads that one alone has"
    )


def test_rows_are_keyed_by_no_hardware_and_scores_by_the_processor(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A teacher is trained on a GPU where there is one; scores are computed on the processor beside it, whose kernels
    count then."""
    before = plan(2)
    monkeypatch.setattr("tasks.stage.keys.device_class", lambda: "cuda-h200")
    on_gpu = changed(before, plan(2))
    assert {"finetune-teacher", "distill-predictions"} <= on_gpu and not on_gpu & {
        "prepare-rows",
        "prepare-corpus",
        "score-model",
        "export-onnx",
    }
    monkeypatch.setattr("tasks.stage.keys.cpu_class", lambda: "cpu-avx2-intel")
    other = changed(before, plan(2))
    assert {"score-model", "export-onnx", "prepare-corpus"} <= other and "prepare-rows" not in other


def test_a_run_is_reproduced_with_the_threads_of_then() -> None:
    hardware = {"cores": 8, "threads": 2, "threads_alone": 3}
    then = RunManifest(recipe={"name": "x", "resources": {"cores": 9}}, hardware=hardware)
    assert recipe_again(then)["resources"] == {"cores": 8, "threads": 2, "threads_alone": 3}
    del hardware["threads_alone"]  # of an earlier release, which gave half of the cores
    then = then.replaced(hardware=hardware)
    assert recipe_again(then)["resources"]["threads_alone"] == 4
    Resources.model_validate(recipe_again(then)["resources"])
