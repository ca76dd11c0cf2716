"""Dimensions and heads of real models of every family, removed by the engine: the written folder loads without us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.architectures.known_architectures import shape_of
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.recipe.makers.slices import WidthSlice
from tasks.scoring.predict import outputs_of
from tasks.training.data.rows import load_tokenizer, read_task
from tasks.training.models.students import load_classifier
from tasks.training.shrinking.width_pruning import cut_width
from tests.families import NAMES, write_tiny
from tests.training.shrinking.test_vocabulary import classifier, texts_in

HALF: dict[str, Any] = {
    "task_type": "classification",
    "keep": 0.5,
    "importance": "taylor",
    "rows": 40,
    "max_length": 32,
}
KEPT = {"electra": 0.75}
"""Half of the width of the tiny ELECTRA is that of its embeddings, so that the map between the two would be gone."""
REFUSED = {"albert", "deberta-v2", "mobilebert", "modernbert", "mpnet", "xlnet"}


def job(output: Path, knobs: dict[str, Any], **inputs: Path) -> Job:
    output.mkdir()
    order = {"job": "width", "knobs": WidthSlice(**knobs).model_dump(mode="json"), "output": str(output)}
    return Job({**order, "inputs": {name: str(folder) for name, folder in inputs.items()}}, silent=True)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_a_family_of_half_of_its_width(name: str, rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny(name, tmp_path / name), rows, tmp_path / "whole")
    before = shape_of(json.loads((whole / "config.json").read_text()))
    knobs = {**HALF, "keep": KEPT.get(name, 0.5)}
    facts = cut_width(job(tmp_path / "half", knobs, base=whole, rows=rows))
    shape = shape_of(json.loads((tmp_path / "half/config.json").read_text()))
    heads = round(before["heads"] * knobs["keep"])
    assert shape == {**before, "hidden": before["hidden"] // before["heads"] * heads, "heads": heads}
    assert (facts["width"], facts["heads"]) == (shape["hidden"], shape["heads"])
    ours, theirs = (
        outputs_of(folder, texts_in(rows), None, 32, task_type="classification")["logits"]
        for folder in (tmp_path / "half", whole)
    )
    assert ours.shape == theirs.shape and (ours != theirs).any()


@pytest.mark.parametrize("name", sorted(REFUSED & set(NAMES)))
def test_a_family_with_other_attention_is_refused_and_nothing_is_written(name: str, rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny(name, tmp_path / name), rows, tmp_path / "whole")
    with pytest.raises(ModelError, match=f"of type {name} (cannot be made narrower|and width .* has other parameters)"):
        cut_width(job(tmp_path / "half", HALF, base=whole, rows=rows))
    assert list((tmp_path / "half").iterdir()) == []


def test_heads_that_write_nothing_go_first(rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny("bert", tmp_path / "bert"), rows, tmp_path / "whole")
    model = load_classifier(whole, read_task(rows, "classification"), torch.device("cpu"))
    size = model.config.hidden_size // model.config.num_attention_heads
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.attention.output.dense.weight[:, : 2 * size] = 0
    model.save_pretrained(tmp_path / "idle")
    load_tokenizer(whole).save_pretrained(tmp_path / "idle")
    for importance in ("taylor", "magnitude"):
        knobs = {**HALF, "importance": importance}
        cut_width(job(tmp_path / importance, knobs, base=tmp_path / "idle", rows=rows))
        kept = json.loads((tmp_path / importance / "config.json").read_text())["limbeck_kept"]
        assert all(heads == [2, 3] for heads in kept["heads"]) and len(kept["dimensions"]) == 8


def test_a_chain_of_cuts_names_the_dimensions_of_the_first_model(rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny("bert", tmp_path / "bert"), rows, tmp_path / "whole")
    cut_width(job(tmp_path / "a", {**HALF, "keep": 0.75}, base=whole, rows=rows))
    cut_width(job(tmp_path / "b", {**HALF, "keep": 0.34}, base=tmp_path / "a", rows=rows))
    first, second = (json.loads((tmp_path / one / "config.json").read_text())["limbeck_kept"] for one in "ab")
    assert set(second["dimensions"]) < set(first["dimensions"]) and max(second["dimensions"]) >= 4
    assert all(set(ours) < set(theirs) for ours, theirs in zip(second["heads"], first["heads"], strict=True))
    weights = [load_classifier(tmp_path / one, read_task(rows, "classification"), torch.device("cpu")) for one in "ab"]
    whole_model = load_classifier(whole, read_task(rows, "classification"), torch.device("cpu"))
    table = whole_model.get_input_embeddings().weight
    for model, kept in zip(weights, (first, second), strict=True):
        assert torch.equal(model.get_input_embeddings().weight, table[:, kept["dimensions"]])


def test_the_same_seed_keeps_the_same_width(rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny("bert", tmp_path / "bert"), rows, tmp_path / "whole")
    weights = {}
    for name, knobs in {
        "a": {},
        "b": {},
        "weights": {"importance": "magnitude"},
        "means": {"importance": "activation"},
        "drawn": {"importance": "random"},
        "drawn again": {"importance": "random", "seed": 1},
    }.items():
        cut_width(job(tmp_path / name, {**HALF, **knobs}, base=whole, rows=rows))
        weights[name] = (tmp_path / name / "model.safetensors").read_bytes()
    assert weights["a"] == weights["b"] and len(set(weights.values())) == 5
