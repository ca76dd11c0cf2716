"""Heads of real models of every family, silenced by the engine: folders keep their shape, graphs have fewer heads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.exports.jobs import export
from tasks.methods.pruning.silent_heads import sounding_heads
from tasks.recipe.makers.slices import HeadSlice
from tasks.recipe.slices import ExportSlice
from tasks.scoring.predict import outputs_of
from tasks.scoring.speed.flops import parameters_of
from tasks.training.data.rows import read_task
from tasks.training.models.students import load_classifier
from tasks.training.shrinking.head_pruning import silence_least_important
from tests.families import NAMES, write_tiny
from tests.training.shrinking.test_vocabulary import classifier, texts_in
from tests.training.shrinking.test_width_pruning import REFUSED

HALF: dict[str, Any] = {
    "task_type": "classification",
    "keep": 0.5,
    "importance": "taylor",
    "rows": 40,
    "max_length": 32,
}


def job(output: Path, knobs: dict[str, Any], **inputs: Path) -> Job:
    output.mkdir()
    order = {"job": "heads", "knobs": HeadSlice(**knobs).model_dump(mode="json"), "output": str(output)}
    return Job({**order, "inputs": {name: str(folder) for name, folder in inputs.items()}}, silent=True)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_a_family_with_half_of_its_heads_and_the_shape_as_before(name: str, rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny(name, tmp_path / name), rows, tmp_path / "whole")
    facts = silence_least_important(job(tmp_path / "half", HALF, base=whole, rows=rows))
    assert (facts["heads"], facts["heads_before"]) == (8, 16) and sum(facts["heads_by_layer"]) == 8  # type: ignore[call-overload]
    shapes = [json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "half", whole)]
    assert shapes[0] == shapes[1]
    task = read_task(rows, "classification")
    model = load_classifier(tmp_path / "half", task, torch.device("cpu"))
    assert sounding_heads(model).sum(1).tolist() == facts["heads_by_layer"]
    ours, theirs = (
        outputs_of(folder, texts_in(rows), None, 32, task_type="classification")["logits"]
        for folder in (tmp_path / "half", whole)
    )
    assert ours.shape == theirs.shape and (ours != theirs).any()


@pytest.mark.parametrize("name", sorted(REFUSED & set(NAMES)))
def test_a_family_with_other_attention_is_refused_and_nothing_is_written(name: str, rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny(name, tmp_path / name), rows, tmp_path / "whole")
    with pytest.raises(ModelError, match=f"heads of a model of type {name} cannot be removed alone"):
        silence_least_important(job(tmp_path / "half", HALF, base=whole, rows=rows))
    assert list((tmp_path / "half").iterdir()) == []


@pytest.mark.slow
def test_a_graph_has_the_heads_that_sound_and_answers_as_the_folder(rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny("bert", tmp_path / "bert"), rows, tmp_path / "whole")
    silence_least_important(job(tmp_path / "half", HALF, base=whole, rows=rows))
    knobs = ExportSlice(task_type="classification", max_length=32, parity_rows=20).model_dump(mode="json")
    output = tmp_path / "onnx"
    output.mkdir()
    order = {"job": "export", "knobs": knobs, "output": str(output), "threads": 1}
    facts = export(Job({**order, "inputs": {"model": str(tmp_path / "half"), "rows": str(rows)}}, silent=True))
    assert facts["largest_difference"] < 1e-5 and facts["equal_answers"] == 1.0  # type: ignore[operator]
    gone = 8 * (4 * 4 * 16 + 3 * 4)  # eight heads of four numbers, at a width of 16
    weights = sum(value.numel() for value in load_file(tmp_path / "half" / "model.safetensors").values())
    assert parameters_of(output) == weights - gone


def test_the_same_seed_keeps_the_same_heads_and_measures_differ(rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny("bert", tmp_path / "bert"), rows, tmp_path / "whole")
    weights = {}
    for name, knobs in {
        "a": {},
        "b": {},
        "layers alike": {"scope": "layer"},
        "weights": {"importance": "magnitude"},
        "means": {"importance": "activation"},
        "drawn": {"importance": "random"},
        "drawn again": {"importance": "random", "seed": 1},
    }.items():
        silence_least_important(job(tmp_path / name, {**HALF, **knobs}, base=whole, rows=rows))
        weights[name] = (tmp_path / name / "model.safetensors").read_bytes()
    assert weights["a"] == weights["b"] and len(set(weights.values())) >= 5
