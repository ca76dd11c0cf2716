"""Exports from a recipe to a pulled folder: rows in the table, nothing made twice, and nothing published that is no
more the same model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from flows.branches.export import columns
from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.errors import RegistryError
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.report.format.speeds import speed_lines
from tasks.results.row import ResultRow
from tasks.results.run import RunResult
from tests.command_line import plan_recipe
from tests.flows.test_compress import FAST
from tests.forked.strangers import print_of_program

STUDENT = {"name": "half", "layers": 2}
LEARNED = STUDENT | {"signal": "labels", "prediction": FAST | {"steps": 150, "learning_rate": 0.01}}
"""The same, taught until it is better than guessing: only such a model has something to lose."""
EXPORTS = {"parity_rows": 20, "calibration_rows": 10, "tolerance": 1.0, "min_speedup": 0.01}
"""A model of 16 hidden units loses answers in int8 and is slower in it; both are let pass where a test is not about
them."""


def recipe_for(bert: Path, rows: Path, **changes: Any) -> Recipe:
    """Return a recipe of one student, its exports, and as little beside them as there can be."""
    values: dict[str, Any] = {
        "name": "packed",
        "task": {"name": "packed", "metrics": ["accuracy"]},
        "data": {"source": str(rows), "selection_rows": 20},
        "teacher": {"model": str(bert), "floor": 0.0, **FAST, "steps": 20},
        "task_distillation": {"prediction": FAST | {"steps": 20}},
        "students": [STUDENT],
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "exports": EXPORTS,
        "gate": {"split": "validation", "criteria": [{"metric": "parameters", "at_most": 1e9}]},
        "resources": {"cores": 2, "threads_alone": 1},
    }
    return Recipe.model_validate(values | changes)


@pytest.fixture(scope="module")
def home(home: Home, prefect_server: None, engines_here: None) -> Home:
    return home


@pytest.fixture(scope="module")
def first(home: Home, tiny_bert: Path, tiny_rows: Path) -> dict[str, Any]:
    return run_recipe(recipe_for(tiny_bert, tiny_rows), home=home)


@pytest.fixture(scope="module")
def pulled(first: dict[str, Any], home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The champion's folder, as a user gets it."""
    folder = tmp_path_factory.mktemp("pulled") / "model"
    tracker(home).download(first["registered"][0]["name"], "champion", folder)
    return folder


def tracker(home: Home) -> Tracker:
    return Tracker(home.own_tracking_uri, home.artifacts)


def rows_of(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {model["name"]: model for model in result["models"]}


def files_in_the_folder(result: dict[str, Any], home: Home, place: Path) -> list[str]:
    """Return what a pulled version has of its exports."""
    tracker(home).download(result["registered"][0]["name"], result["registered"][0]["version"], place / "model")
    return sorted(path.name for path in (place / "model" / "onnx").glob("*"))


def executed(result: dict[str, Any]) -> set[str]:
    return {stage["name"] for stage in result["stages"] if stage["cache"] == "miss"}


def test_a_note_on_a_graph_is_that_of_its_row() -> None:
    """A published graph says what its users should know; one that is not published says why."""
    made = SimpleNamespace(facts={}, read=lambda facts: facts(note="its time grows with the square"))
    export = SimpleNamespace(
        name="half-onnx", of=SimpleNamespace(name="half"), format="onnx", artifact=made, because="", speedup=1.0
    )
    export.unsteady = None
    row: Any = SimpleNamespace(role="student", note="of its checkpoint")
    assert columns(export, row)["note"] == "its time grows with the square"  # type: ignore[arg-type]
    export.because = "it is slower"
    assert columns(export, row)["note"] == "half-onnx is not published: it is slower"  # type: ignore[arg-type]
    export.because, made.read = "", lambda facts: facts()
    assert columns(export, row)["note"] == "of its checkpoint"  # type: ignore[arg-type]


def test_every_export_has_a_row_with_every_figure(first: dict[str, Any]) -> None:
    assert [(model["name"], model["role"]) for model in first["models"]] == [
        ("teacher", "teacher"),
        ("half", "student"),
        ("half-onnx", "export"),
        ("half-int8", "export"),
    ]
    rows = rows_of(first)
    for name in ("half-onnx", "half-int8"):
        row = rows[name]
        assert row["of"] == "half" and row["gate"] == "published" and row["against"] == {}
        assert all(
            row[figure] is not None
            for figure in (
                "parameters",
                "bytes",
                "flops",
                "latency_ms",
                "speedup",
                "memory_bytes",
                "metrics",
                "truncated",
            )
        )
        assert row["difference"]["validation"]["low"] is not None and row["parameters"] == rows["half"]["parameters"]
        assert row["measured_at"]["engine"].startswith(f"{row['engine']} against torch fp32 sdpa, ")
    assert rows["half-onnx"]["engine"] == "onnxruntime fp32" and re.fullmatch(
        "onnxruntime int8 (dynamic|static)", rows["half-int8"]["engine"]
    )
    assert (
        rows["half-onnx"]["metrics"] == rows["half"]["metrics"]
        and rows["half-onnx"]["export"]["largest_difference"] < 1e-4
    )
    found = rows["half-int8"]["export"]
    assert set(found["ways"]) == {"dynamic", "static"} and found["loss"] == min(
        way["loss"] for way in found["ways"].values()
    )
    assert [entry["candidate"] for entry in first["registered"]] == ["half"]


def test_a_second_run_makes_nothing_and_a_plan_knows_it(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    recipe = recipe_for(tiny_bert, tiny_rows)
    assert {row["cache"] for row in plan_recipe(recipe, home=home)} == {"hit"}
    again = run_recipe(recipe, home=home)
    assert executed(again) == set() and not any(entry["new"] for entry in again["registered"])


def test_exports_leave_the_other_stages_alone(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    missed = {
        row["stage"]
        for row in plan_recipe(recipe_for(tiny_bert, tiny_rows, exports=None), home=home)
        if row["cache"] == "miss"
    }
    assert missed == set()
    changed = recipe_for(tiny_bert, tiny_rows, exports=EXPORTS | {"calibration_rows": 11})
    assert {row["stage"] for row in plan_recipe(changed, home=home) if row["cache"] == "miss"} == {
        "quantize-onnx/half",
        "score-model/half-int8",
        "measure-speed/half-int8",
        "inspect-answers/half-int8",
        "measure-speed/half-int8 against its fp32",
    }


def test_a_pulled_folder_holds_the_graphs_that_were_judged(first: dict[str, Any], pulled: Path) -> None:
    assert sorted(path.name for path in (pulled / "onnx").iterdir()) == ["model.onnx", "model_int8.onnx", "onnx.json"]
    card = json.loads((pulled / "onnx" / "onnx.json").read_text())
    assert (
        card["files"] == {"onnx": "model.onnx", "int8": "model_int8.onnx"}
        and card["labels"] == ["negative", "positive"]
        and card["opset"] == 20
    )
    text = (pulled / "README.md").read_text()
    assert "`model_int8.onnx`" in text and "onnxruntime.InferenceSession" in text


def test_mlflow_loads_the_model_as_before(first: dict[str, Any], home: Home) -> None:
    import mlflow.transformers

    mlflow.set_tracking_uri(home.own_tracking_uri)
    parts = mlflow.transformers.load_model(
        f"models:/{first['registered'][0]['name']}@champion", return_type="components"
    )
    assert parts["model"].config.num_labels == 2


def test_the_card_s_snippet_runs_where_torch_and_transformers_are_not(
    first: dict[str, Any], pulled: Path, tmp_path: Path
) -> None:
    """And gives, text by text, the predictions that were judged."""
    snippet = re.findall(r"```python\n(.*?)```", (pulled / "README.md").read_text(), re.DOTALL)[-1].replace(
        "FOLDER", str(pulled)
    )
    printed = print_of_program(snippet, tmp_path)
    assert printed in ("positive", "negative")
    from tasks.scoring.predict import predict_texts

    assert printed == predict_texts(pulled / "onnx", ["some text"])[0]["label"]


def test_a_pulled_graph_gives_the_answers_that_were_judged(first: dict[str, Any], home: Home, pulled: Path) -> None:
    import pyarrow.parquet as pq

    from tasks.ports.store.folder import FolderStore
    from tasks.scoring.onnx_models import OnnxModel

    store = FolderStore(Path(home.store))
    of = {stage["name"] + "/" + stage["label"]: store.find(stage["key"]) for stage in first["stages"]}
    card, rows = (store.folder(of[name]) for name in ("score-model/half-int8", "prepare-rows/"))
    texts = pq.ParquetFile(rows / "validation.parquet").read(["text"]).to_pydict()["text"]
    judged = pq.ParquetFile(card / "predictions.parquet").read(["logits"]).to_pydict()["logits"]
    found_NC = OnnxModel(pulled / "onnx").outputs(texts, None, 16)["logits"]
    assert found_NC.tolist() == [list(row) for row in judged[: len(texts)]]


def test_what_is_no_more_the_same_model_in_fp32_is_not_tried_in_int8(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    """No fp32 graph is as near to its checkpoint as this asks, so int8 is not even tried."""
    exports = EXPORTS | {"tolerance": 0.0, "parity": 1e-12}
    result = run_recipe(recipe_for(tiny_bert, tiny_rows, exports=exports), home=home)
    rows = rows_of(result)
    assert [rows[name]["gate"] for name in ("half-onnx", "half-int8")] == ["not published", "not published"]
    assert (
        "and exports.parity allows 1e-12" in rows["half-onnx"]["note"] and rows["half-onnx"]["latency_ms"] is not None
    )
    assert "there is no valid fp32 graph" in rows["half-int8"]["note"] and rows["half-int8"]["latency_ms"] is None
    assert result["registered"][0]["new"]  # other files than the version before
    tracker(home).download(result["registered"][0]["name"], result["registered"][0]["version"], tmp_path / "model")
    assert not (tmp_path / "model" / "onnx").exists()
    from tasks.report.tables.results import results_markdown

    assert "half-int8 is not published" in results_markdown(RunResult.model_validate(result).models)


def crushed(way: Callable[..., None]) -> Callable[..., None]:
    """Return a way to int8 that first loses what the weights of the products say, as scales that are far too coarse
    would."""

    def quantize(source: Path, target: Path, **knobs: Any) -> None:
        model = onnx.load(str(source))
        products = {name for node in model.graph.node if node.op_type in ("MatMul", "Gemm") for name in node.input}
        for one in model.graph.initializer:
            if one.name in products:
                one.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(one) * np.float32(1e-6), one.name))
        coarse = target.with_suffix(".coarse.onnx")
        onnx.save(model, str(coarse))
        way(coarse, target, **knobs)

    return quantize


def test_int8_that_loses_more_than_its_tolerance_stays_in_the_table_and_out_of_the_folder(
    home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is real: the weights are crushed before they are quantized, and what comes out is scored and judged as
    always."""
    from tasks.exports.quantizing import WAYS

    for name, way in list(WAYS.items()):
        monkeypatch.setitem(WAYS, name, crushed(way))
    recipe = recipe_for(
        tiny_bert, tiny_rows, students=[LEARNED], exports=EXPORTS | {"calibration_rows": 12, "tolerance": 0.05}
    )
    result = run_recipe(recipe, home=home)
    row = rows_of(result)["half-int8"]
    found = row["export"]
    assert (
        found["made"]
        and found["loss"] == pytest.approx(found["fp32"]["score"] - found["score"])
        and found["loss"] > 0.05
    )
    said = (
        f"int8 ({found['way']}) loses {found['loss']:.4f} of accuracy against its own fp32 graph on the selection "
        f"rows, and "
        f"exports.tolerance allows 0.05"
    )
    assert row["gate"] == "not published" and row["note"] == f"half-int8 is not published: {said}"
    assert row["metrics"]["validation"]["accuracy"]["value"] is not None and row["latency_ms"] is not None
    assert "measure-speed/half-int8 against its fp32" not in {
        stage["name"] + "/" + stage["label"] for stage in result["stages"]
    }
    assert rows_of(result)["half-onnx"]["gate"] == "published" and files_in_the_folder(result, home, tmp_path) == [
        "model.onnx",
        "onnx.json",
    ]
    card = (tmp_path / "model" / "README.md").read_text()
    assert "`model.onnx`" in card and "model_int8.onnx" not in card


def test_int8_that_is_too_slow_stays_in_the_table_and_out_of_the_folder(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    """Nothing is made or measured again for it: the knob is in no key, and decides once the graphs are timed."""
    assert rows_of(first)["half-int8"]["export"]["speedup"] > 0
    result = run_recipe(recipe_for(tiny_bert, tiny_rows, exports=EXPORTS | {"min_speedup": 1000.0}), home=home)
    row = rows_of(result)["half-int8"]
    assert executed(result) == set() and row["latency_ms"] is not None
    if row["export"]["unsteady"]:  # others use this machine now, too: what was measured keeps nothing out
        said = "".join(speed_lines([ResultRow.model_validate(row)]))
        why = "exports.min_speedup, because its speed relative to its own fp32 graph is unsteady: after"
        assert row["gate"] == "published" and why in said
        return
    assert row["gate"] == "not published"
    assert re.search(
        r"int8 takes \S+ ms, its own fp32 \S+ ms \(batch 1, length 8, threads 1\): .* exports.min_speedup requires "
        r"1000$",
        row["note"],
    )
    assert rows_of(result)["half-onnx"]["gate"] == "published" and files_in_the_folder(result, home, tmp_path) == [
        "model.onnx",
        "onnx.json",
    ]


def test_speed_that_nobody_asks_for_is_not_measured(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    plan = plan_recipe(recipe_for(tiny_bert, tiny_rows, exports=EXPORTS | {"min_speedup": 0.0}), home=home)
    assert plan and not [row["stage"] for row in plan if "against its fp32" in row["stage"] or row["cache"] == "miss"]


def test_a_graph_that_was_changed_in_the_registry_is_not_written(
    first: dict[str, Any], home: Home, tmp_path: Path
) -> None:
    here = tracker(home)
    entry = first["registered"][0]
    version = here.find_version(entry["name"], entry["version"])
    model = here.client.get_logged_model(version.source.removeprefix("models:/"))
    stored = Path(model.artifact_location.removeprefix("file://")) / "model" / "onnx" / "model_int8.onnx"
    kept = stored.read_bytes()
    try:
        stored.write_bytes(kept + b"\0")
        with pytest.raises(RegistryError, match=r"packed-.* not the evaluated ones?.*nothing was written"):
            here.download(entry["name"], entry["version"], tmp_path / "model")
    finally:
        stored.write_bytes(kept)
    shutil.rmtree(tmp_path / "model", ignore_errors=True)
    here.download(entry["name"], entry["version"], tmp_path / "model")
