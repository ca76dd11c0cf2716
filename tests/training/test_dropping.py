"""The engine on layers: which go when a search hands over what stays, and how like a fine-tuned model is to the one it
was tuned from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.engine.job import Job
from tasks.errors import RecipeError
from tasks.recipe.slices import ContributionSlice, DropSlice
from tasks.training.dropping import drop_and_train, measure_similarity

FAST: dict[str, Any] = {"steps": 2, "batch_size": 8, "max_length": 16, "evaluations": 1, "precision": "fp32"}


def job(name: str, knobs: Any, folder: Path, **inputs: Path) -> Job:
    folder.mkdir()
    order = {
        "job": name,
        "knobs": knobs.model_dump(mode="json"),
        "inputs": {key: str(path) for key, path in inputs.items()},
        "output": str(folder),
    }
    return Job(order, silent=True)


def changed(bert: Path, folder: Path, layer: int) -> Path:
    """Return a copy of a model in which one layer's output is another."""
    shutil.copytree(bert, folder)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith(f"layer.{layer}.output.dense.weight"))
    torch.manual_seed(1)
    weights[name] = torch.randn_like(weights[name])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("token", ["cls", "mean"])
def test_layers_below_a_change_are_the_same_and_those_above_are_not(
    rows: Path, tiny_bert: Path, tmp_path: Path, token: str
) -> None:
    other = changed(tiny_bert, tmp_path / "other", layer=2)
    facts = measure_similarity(
        job(
            "similarity",
            ContributionSlice(task_type="classification", token=token, max_length=16),
            tmp_path / "out",
            base=tiny_bert,
            teacher=other,
            rows=rows,
        )
    )
    assert len(facts["cka"]) == len(facts["cosines"]) == 5 and facts["rows"] == 20 and facts["tokens"] > 100
    assert facts["cka"][:3] == pytest.approx([1.0] * 3) and facts["cosines"][:3] == pytest.approx([1.0] * 3)
    assert max(facts["cka"][3:]) < 0.99 and max(facts["cosines"][3:]) < 0.99
    assert json.loads((tmp_path / "out" / "similarity.json").read_text()) == facts


def test_a_model_is_itself(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    facts = measure_similarity(
        job(
            "similarity",
            ContributionSlice(task_type="classification", max_length=16),
            tmp_path / "out",
            base=tiny_bert,
            teacher=tiny_bert,
            rows=rows,
        )
    )
    assert facts["cka"] == pytest.approx([1.0] * 5) and facts["cosines"] == pytest.approx([1.0] * 5)


def test_a_search_hands_over_the_layers_that_stay(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    facts = drop_and_train(
        job(
            "drop",
            DropSlice(task_type="classification", **FAST, strategy="greedy", drop=2, kept=(0, 3)),
            tmp_path / "out",
            base=tiny_bert,
            rows=rows,
        )
    )
    assert facts["kept_layers"] == [0, 3] and "selection_score" in facts
    assert json.loads((tmp_path / "out" / "config.json").read_text())["kept_layers"] == [0, 3]
    with pytest.raises(RecipeError, match="needs the 2 of 4 layers that its search kept"):
        drop_and_train(
            job(
                "drop",
                DropSlice(task_type="classification", **FAST, strategy="greedy", drop=2),
                tmp_path / "none",
                base=tiny_bert,
                rows=rows,
            )
        )
