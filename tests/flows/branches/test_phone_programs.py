"""Programs for phones from a recipe to a pulled folder: rows in the table, files, and predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.recipe.recipe import Recipe
from tasks.results.run import RunResult
from tasks.scoring.executorch_programs import is_installed
from tasks.scoring.predict import predict_texts
from tests.flows.branches.test_exports import EXPORTS, STUDENT, recipe_for, tracker

BOTH = ["onnx", "executorch", "executorch-int8"]


@pytest.mark.slow
def test_programs_are_scored_timed_published_and_pulled(
    prefect_server: None, engines_here: None, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    if not is_installed():
        pytest.skip("executorch is not installed: pip install 'limbeck[phone]'")
    home = Home(tmp_path / "home").create()
    recipe: Recipe = recipe_for(
        tiny_bert, tiny_rows, exports={**EXPORTS, "formats": BOTH}, students=[{**STUDENT, "layers": 1}]
    )
    result: dict[str, Any] = run_recipe(recipe, home=home)
    rows = {row.name: row for row in RunResult.model_validate(result).models}
    for name, engine in (("half-executorch", "executorch fp32"), ("half-executorch-int8", "executorch int8 dynamic")):
        row = rows[name]
        assert row.engine == engine and row.export is not None and row.export.published, row.note
        assert row.metrics and row.latency_ms and row.bytes
    assert rows["half-executorch"].metrics == rows["half"].metrics
    found = result["registered"][0]
    tracker(home).download(found["name"], found["version"], tmp_path / "model")
    assert {"model.onnx", "model.pte", "model_int8.pte"} <= {one.name for one in (tmp_path / "model/onnx").iterdir()}
    (ours,), (theirs,) = (
        predict_texts(tmp_path / "model", ["a good film"], export_format=name) for name in ("executorch", "onnx")
    )
    assert ours["score"] == pytest.approx(theirs["score"], abs=1e-5)
    card = (tmp_path / "model/README.md").read_text()
    assert "Files `*.pte` are programs of ExecuTorch for phones" in card and "onnxruntime.InferenceSession" in card
