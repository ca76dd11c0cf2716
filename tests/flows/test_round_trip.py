"""From the evaluation to the user and back: what is pulled answers as it was judged, to the last bit, and a run can be
made again, to the last byte.

The batches of the evaluation (64 rows of like length, padded to the longest) are part of the claim: the same text in
another batch may differ in the last bits, because sums are added up in another order.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from flows.cli.reproduce import recipe_again, reproduce
from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.contracts import Artifact
from tasks.errors import DataError, RecipeError, RegistryError
from tasks.ports.store.artifacts import digest_of, take_inventory
from tasks.ports.store.folder import FolderStore
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.results.record import Reproduction, RunManifest
from tasks.scoring.predict import predict_texts
from tests.command_line import Command
from tests.flows.run.test_bad_input import SHORT
from tests.flows.test_compress import recipe_for
from tests.forked.interpreter import forked_processes
from tests.stage.test_progress import left

ROOT = Path(__file__).resolve().parents[2]
READER = ROOT / "tests" / "clean_reader.py"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, tiny_rows: Path) -> Path:
    """Rows of the test's own, which it may change."""
    file = tmp_path_factory.mktemp("own") / "train.csv"
    file.write_text(tiny_rows.read_text())
    return file


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, rows: Path) -> dict[str, Any]:
    """One real run with more than one batch to judge by; made again, its engines have processes of their own."""
    data = {"source": str(rows), "selection_rows": 20, "validation_share": 0.4}
    gate = {"criteria": [{"metric": "parameters", "at_most": 1e9}], "register_as": "tiny-model"}
    return run_recipe(recipe_for(tiny_bert, rows, **SHORT, data=data, gate=gate), home=home)


def made(result: Mapping[str, Any], home: Home, stage: str) -> Artifact:
    """Return what a stage of the run made."""
    row = next(row for row in result["manifest"]["stages"] if row["stage"] == stage)
    found = FolderStore(Path(home.store)).find(row["key"])
    assert found is not None and found.sha256 == row["sha256"]
    return found


@pytest.fixture(scope="module")
def pulled(result: dict[str, Any], home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pulled") / "model"
    Tracker(home.own_tracking_uri, home.artifacts).download("tiny-model", "champion", folder)
    return folder


# --- the pulled model -------------------------------------------------------------------------------------------------


def test_a_pulled_model_answers_bit_for_bit_as_judged_without_our_code(
    result: dict[str, Any], home: Home, pulled: Path, tmp_path: Path
) -> None:
    store = FolderStore(Path(home.store))
    judged = pq.read_table(store.folder(made(result, home, "score-model/half")) / "predictions.parquet").to_pylist()
    rows = pq.read_table(store.folder(made(result, home, "prepare-rows")) / "validation.parquet").to_pylist()
    assert len(rows) > 64 and [row["id"] for row in judged] == [row["id"] for row in rows]
    (tmp_path / "order.json").write_text(
        json.dumps({"texts": [row["text"] for row in rows], "pairs": None, "max_length": 16, "batch": 64})
    )
    command = [
        sys.executable,
        "-I",
        str(READER),
        str(pulled),
        str(tmp_path / "order.json"),
        str(tmp_path / "answers.json"),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PATH": "/usr/bin", "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert answers["logits"] == [row["logits"] for row in judged]
    assert answers["labels"] == {"0": "negative", "1": "positive"} and answers["ours"] == []


STATED = {
    "config.json": {"limbeck_max_length": 16, "limbeck_pairs": False},
    "tokenizer_config.json": {"model_max_length": 16},
}
"""Files of a pulled model that state the inputs of the evaluation, and how."""


def test_the_pulled_files_are_the_checkpoint_that_was_judged(result: dict[str, Any], home: Home, pulled: Path) -> None:
    """All of them byte for byte, but for the inputs of the evaluation, which two of them state."""
    stage = next(row["stage"] for row in result["manifest"]["stages"] if row["stage"].startswith("distill-predictions"))
    judged = FolderStore(Path(home.store)).folder(made(result, home, stage))
    assert digest_of(take_inventory(judged, "checkpoint")) == next(
        model["checkpoint"] for model in result["models"] if model["name"] == "half"
    )
    for path in judged.iterdir():
        if path.name not in STATED:
            assert (pulled / path.name).read_bytes() == path.read_bytes(), path.name
            continue
        ours, theirs = (json.loads(file.read_text()) for file in (pulled / path.name, path))
        assert ours == theirs | STATED[path.name] != theirs


def test_a_long_text_is_truncated_where_the_evaluation_truncated(pulled: Path) -> None:
    """The model has 64 positions and was evaluated with 16 tokens: more would be an error, or another answer."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    model = AutoModelForSequenceClassification.from_pretrained(pulled)
    tokenizer = AutoTokenizer.from_pretrained(pulled)
    text = "the film was very good and " * 40
    assert tokenizer(text, truncation=True, return_tensors="pt")["input_ids"].shape == (1, 16)
    snippet = re.findall(r"```python\n(.*?)```", (pulled / "README.md").read_text(), re.DOTALL)[0]
    given: dict[str, Any] = {}
    exec(snippet.replace("FOLDER", str(pulled)).replace('"some text"', repr(text)), given)
    answer = predict_texts(pulled, [text])[0]
    assert given["model"].config.id2label[given["logits"].argmax(-1).item()] == answer["label"]
    asked = pipeline("text-classification", model=model, tokenizer=tokenizer, truncation=True)(text)
    assert asked == [{"label": answer["label"], "score": pytest.approx(answer["score"], abs=1e-5)}]


# --- the manifest -----------------------------------------------------------------------------------------------------


def test_the_manifest_says_what_decided_and_what_came_out(result: dict[str, Any], home: Home) -> None:
    tracker = Tracker(home.own_tracking_uri, home.artifacts)
    [run] = tracker.runs(5)
    manifest = tracker.recall(run["run"], "manifest")
    assert manifest == json.loads(json.dumps(result["manifest"]))
    assert set(manifest["sources"]) == {"data", "teacher"} and all(
        len(one["sha256"]) == 64 for one in manifest["sources"].values()
    )
    assert len(manifest["code"]["sha256"]) == 64 and {"python", "torch", "transformers"} <= manifest["versions"].keys()
    assert manifest["seeds"] | {"teacher.seed": 0, "students.half.seeds": [0], "data.seed": 0} == manifest["seeds"]
    assert {"cpu", "cores", "threads", "gpu", "device"} <= manifest["hardware"].keys()
    assert {row["stage"] for row in manifest["stages"] if row["measured"]} == {
        "measure-speed/teacher",
        "measure-speed/half",
    }
    assert manifest["models"]["half"]["score"] is not None
    Recipe.model_validate(recipe_again(RunManifest.model_validate(manifest)))


# --- again ------------------------------------------------------------------------------------------------------------


def again(home: Home, prefect_url: str, **how: Any) -> Reproduction:
    """Reproduce the only run of this home."""
    tracker = Tracker(home.own_tracking_uri, home.artifacts)
    with forked_processes():
        return reproduce(
            tracker, tracker.runs(1)[0], home=home, environment=os.environ | {"PREFECT_API_URL": prefect_url}, **how
        )


def test_a_run_from_nothing_makes_the_same_bytes(
    result: dict[str, Any], home: Home, prefect_url: str, tmp_path: Path
) -> None:
    before = Tracker(home.own_tracking_uri, None).models()
    found = again(home, prefect_url, keep=tmp_path / "kept")
    assert found.equal, [row for row in found.stages if row.verdict not in ("equal", "measured")]
    assert [row.verdict for row in found.stages].count("equal") == len(result["manifest"]["stages"]) - 2
    kept = FolderStore(tmp_path / "kept" / "home" / "store")
    assert {manifest["key"] for manifest in kept.manifests()} == {row["key"] for row in result["manifest"]["stages"]}
    assert (
        Tracker(home.own_tracking_uri, None).models() == before
        and len(Tracker(home.own_tracking_uri, None).runs(5)) == 1
    )
    with pytest.raises(RecipeError, match="not empty; name a new folder with --keep"):
        again(home, prefect_url, keep=tmp_path / "kept")


def test_the_command_compares_the_store_and_says_by_its_status_what_differs(
    result: dict[str, Any], home: Home, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    words = ("reproduce", "--from-cache", "--json", str(tmp_path / "compared.json"))
    done = command(*words)
    assert done.status == 0, done.error
    assert "stages produced the same bytes; 2 measure speed and are not compared." in done.output
    assert json.loads((tmp_path / "compared.json").read_text())["equal"]
    tracker = Tracker(home.own_tracking_uri, home.artifacts)
    tracker.parent = tracker.runs(1)[0]["run"]
    stages = [
        row | ({"sha256": "1" * 64} if row["stage"] == "finetune-teacher" else {})
        for row in result["manifest"]["stages"]
    ]
    tracker.note("manifest", result["manifest"] | {"stages": stages})
    done = command(*words)
    tracker.note("manifest", result["manifest"])
    assert done.status == 3 and "The first different stage: finetune-teacher: no recorded difference" in done.output, (
        done.output + done.error
    )


def test_a_source_that_changed_is_refused_unless_wanted(
    result: dict[str, Any], home: Home, rows: Path, prefect_url: str
) -> None:
    whole = rows.read_text()
    rows.write_text(whole.replace("was good", "was fine", 1))
    try:
        with pytest.raises(
            DataError, match="the source 'data' has changed since .*restore the old files, or compare --anyway"
        ) as caught:
            again(home, prefect_url)
        assert "\n" not in str(caught.value)
        found = again(home, prefect_url, from_cache=True, anyway=True)
    finally:
        rows.write_text(whole)
    assert not found.equal and len(found.sources) == 1
    assert {row.verdict for row in found.stages} == {"missing", "measured"}, (
        "nothing of the changed rows is in the store, and nothing was run"
    )


def test_a_run_without_a_manifest_is_one_sentence(result: dict[str, Any], home: Home) -> None:
    tracker = Tracker(home.own_tracking_uri, home.artifacts, experiment="tiny/bert", run_name="unfinished")
    tracker.open()
    tracker.close("FAILED")
    with pytest.raises(RegistryError, match=f"run {tracker.parent[:8]} has no manifest: it did not finish") as caught:
        reproduce(tracker, {"run": tracker.parent}, home=home, environment={})
    assert "\n" not in str(caught.value)


# --- pages ------------------------------------------------------------------------------------------------------------


def test_the_run_leaves_its_table_in_prefect_and_its_text_in_mlflow(result: dict[str, Any], home: Home) -> None:
    tracker = Tracker(home.own_tracking_uri, home.artifacts)
    run = next(row for row in tracker.runs(5) if row["status"] == "FINISHED")
    tags = tracker.client.get_run(run["run"]).data.tags
    text = tags["mlflow.note.content"]
    assert text.startswith("**half** is champion: `limbeck pull tiny-model@champion my-model`") and "| half |" in text
    assert tags["prefect.flow_run_id"] in tags["prefect.url"]
    [table] = [one for one in asyncio.run(left(flow_run_id=tags["prefect.flow_run_id"])) if one["key"] == "results"]
    assert "| half |" in table["data"] and "MLflow: start `limbeck ui` for links." in table["data"]
