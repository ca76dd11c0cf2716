"""Rankings from a table to a pulled cross-encoder: teacher, student on margins, gate, registration, predictions; all
methods and graphs in ``make slow``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.scoring.predict import predict_texts
from tests.flows.test_compress import FAST
from tests.task_types.ranking.tables import write_graded
from tests.task_types.shown.cards import snippets_of
from tests.task_types.shown.disagreements import shown_disagreement

TRAINED: dict[str, Any] = {**FAST, "steps": 40, "learning_rate": 5e-3, "batch_size": 8, "max_length": 16}


def values_for(bert: Path, table: Path) -> dict[str, Any]:
    """Return a recipe with a student that learns the teacher's margins."""
    return {
        "name": "search",
        "task": {"name": "search", "kind": "ranking", "text": "query", "pair": "passage"},
        "data": {"source": str(table), "selection_rows": 20, "validation_share": 0.2},
        "teacher": {"model": str(bert), **TRAINED, "floor": 0.0},
        "task_distillation": {"prediction": {**TRAINED, "steps": 8}},
        "students": [{"name": "half", "layers": 2, "stages": []}],
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "ndcg_at_10", "at_least": 0.0}],
            "register_as": "reranker",
        },
        "resources": {"cores": 2, "threads_alone": 1},
    }


def values_of_all(bert: Path, table: Path) -> dict[str, Any]:
    """Return a recipe of all stages that ask the type, and of all formulas."""
    values = values_for(bert, table)
    values["teacher"] |= {"steps": 160}
    ways = [
        {"name": name, "layers": 2, "stages": [], "prediction": {**TRAINED, "steps": 4, "formula": name}}
        for name in ("scores", "lists")
    ]
    inner = {"name": "inner", "layers": 2, "stages": ["intermediate"]}
    baseline = {"name": "labels", "layers": 2, "signal": "labels", "role": "baseline"}
    pruned = {"from": "teacher", "by": "neuron-pruning", "importance": "taylor", "rows": 40, "keep": 0.5}
    return values | {
        "task_distillation": {**values["task_distillation"], "intermediate": {**TRAINED, "steps": 2}},
        "students": [{**values["students"][0], "seeds": [0, 1]}, *ways, inner, baseline],
        "candidates": [{"name": "fewer", **pruned}],
        "layer_dropping": {"strategies": ["top"], "drop": [2], **TRAINED, "steps": 2},
        "exports": {"of": ["half"], "parity_rows": 16, "tolerance": 1.0},
    }


def test_a_student_ranks_texts(
    prefect_server: None, engines_here: None, tiny_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path / "home").create()
    recipe = Recipe.model_validate(values_for(tiny_bert, write_graded(tmp_path / "table")))
    result = run_recipe(recipe, home=home, json_path=home.root / "out.json")
    models = {one["name"]: one for one in result["models"]}
    assert {*models} == {"teacher", "half"}
    score = models["teacher"]["metrics"]["validation"]["ndcg_at_10"]
    assert score["low"] <= score["value"] <= score["high"]
    (file,) = home.root.rglob("answers.safetensors")
    stored = load_file(file)
    assert stored["logits"].shape == (stored["counts"].sum(), 1) and {*stored["counts"].tolist()} == {3, 4}
    page = next(home.root.rglob("report.html")).read_text()
    assert "Queries whose first text is wrong" in page and ">None<" not in page
    shown_disagreement(result, home, "Queries that lost most")
    folder = tmp_path / "model"
    Tracker(home.own_tracking_uri, home.artifacts).download("reranker", "champion", folder)
    (found,) = predict_texts(folder, ["which song"], ["film was good\nsong was bad\nbook was fine"])
    scores = found["scores"]
    assert sorted(range(3), key=lambda place: -scores[place]) == found["order"]  # type: ignore[index,operator]
    (snippet,) = snippets_of(folder, 1)
    exec(compile(snippet, "card", "exec"), {})  # the whole of it in a clean process: below
    assert "first text" in capsys.readouterr().out


@pytest.mark.slow
def test_every_method_works_on_rankings(
    prefect_server: None, engines_here: None, tiny_bert: Path, tmp_path: Path
) -> None:
    """Students by all formulas and on layers, dropped and pruned models, a baseline, graphs; snippets run without our
    code."""
    home = Home(tmp_path / "home").create()
    recipe = Recipe.model_validate(values_of_all(tiny_bert, write_graded(home.root / "table")))
    result = run_recipe(recipe, home=home, json_path=home.root / "out.json")
    models = {one["name"]: one for one in result["models"]}
    trained = {"half", "scores", "lists", "inner", "labels", "top-2", "fewer"}
    assert {*models} == {"teacher", *trained, "half-onnx", "half-int8"}
    assert [stage["name"] for stage in result["stages"]].count("answer-rows") == 1
    gains = {name: one["metrics"]["validation"]["ndcg_at_10"]["value"] for name, one in models.items()}
    assert gains["teacher"] > 0.72  # a random order has about 0.65
    assert gains["half-onnx"] == pytest.approx(gains["half"])
    assert models["half-onnx"]["export"]["largest_difference"] < 1e-3
    folder = tmp_path / "model"
    number = next(one["version"] for one in result["registered"] if one["candidate"] == "half")
    Tracker(home.own_tracking_uri, home.artifacts).download("reranker", str(number), folder)
    for snippet in snippets_of(folder, 2):
        command = [sys.executable, "-I", "-c", snippet]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "first text" in done.stdout, snippet + done.stderr[-2000:]
