"""Neurons of real models of every family, removed by the engine: the written folder loads without us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.architectures.known_architectures import ARCHITECTURES, shape_of
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.recipe.makers.slices import NeuronSlice
from tasks.scoring.predict import outputs_of
from tasks.training.data.encoded import Encoded, Windows
from tasks.training.data.rows import load_tokenizer, read_task, task_and_tokenizer
from tasks.training.models.students import load_classifier
from tasks.training.shrinking.neuron_pruning import drawn_rows, importance_of, prune_neurons
from tests.families import NAMES, write_tiny
from tests.training.shrinking.test_vocabulary import classifier, texts_in

HALF: dict[str, Any] = {
    "task_type": "classification",
    "keep": 0.5,
    "importance": "taylor",
    "rows": 40,
    "max_length": 32,
}
WITH_TWO_MAPS = [name for name in NAMES if ARCHITECTURES[name].feed_forward]


def job(output: Path, knobs: dict[str, Any], **inputs: Path) -> Job:
    output.mkdir()
    order = {"job": "neurons", "knobs": NeuronSlice(**knobs).model_dump(mode="json"), "output": str(output)}
    return Job({**order, "inputs": {name: str(folder) for name, folder in inputs.items()}}, silent=True)


@pytest.mark.parametrize("name", WITH_TWO_MAPS)
def test_a_family_with_half_of_its_neurons(name: str, rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny(name, tmp_path / name), rows, tmp_path / "whole")
    facts = prune_neurons(job(tmp_path / "half", HALF, base=whole, rows=rows))
    assert (facts["neurons"], facts["neurons_before"]) == (16, 32)
    assert shape_of(json.loads((tmp_path / "half/config.json").read_text()))["feed_forward"] == 16
    ours, theirs = (
        outputs_of(folder, texts_in(rows), None, 32, task_type="classification")["logits"]
        for folder in (tmp_path / "half", whole)
    )
    assert ours.shape == theirs.shape and (ours != theirs).any()
    task = read_task(rows, "classification")
    again = load_classifier(tmp_path / "half", task, torch.device("cpu"))
    assert len(load_tokenizer(tmp_path / "half")) == len(load_tokenizer(whole))
    assert sum(value.numel() for value in again.parameters()) < sum(
        value.numel() for value in load_classifier(whole, task, torch.device("cpu")).parameters()
    )


def test_neurons_that_are_never_active_go_first_and_nothing_changes(rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny("bert", tmp_path / "bert"), rows, tmp_path / "whole")
    task = read_task(rows, "classification")
    model = load_classifier(whole, task, torch.device("cpu"))
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.output.dense.weight[:, ::2] = 0
    model.save_pretrained(tmp_path / "idle")
    load_tokenizer(whole).save_pretrained(tmp_path / "idle")
    for importance in ("taylor", "magnitude"):
        prune_neurons(job(tmp_path / importance, {**HALF, "importance": importance}, base=tmp_path / "idle", rows=rows))
        ours, theirs = (
            outputs_of(folder, texts_in(rows), None, 32, task_type="classification")["logits"]
            for folder in (tmp_path / importance, tmp_path / "idle")
        )
        assert abs(ours - theirs).max() < 1e-5


@pytest.mark.parametrize("sharing", ["attention", "ffn"])
@pytest.mark.parametrize("importance", ["taylor", "magnitude"])
def test_a_block_that_all_layers_share_is_cut_once(sharing: str, importance: str, rows: Path, tmp_path: Path) -> None:
    """It was cut for each layer: the second cut ended in an IndexError."""
    whole = write_tiny("albert", tmp_path / "albert", num_hidden_groups=4, limbeck_sharing=sharing)
    whole = classifier(whole, rows, tmp_path / "whole")
    knobs = {**HALF, "importance": importance}
    prune_neurons(job(tmp_path / "half", knobs, base=whole, rows=rows))
    model = load_classifier(tmp_path / "half", read_task(rows, "classification"), torch.device("cpu"))
    blocks = [group.albert_layers[0].ffn for group in model.albert.encoder.albert_layer_groups]
    assert len(set(blocks)) == {"attention": 4, "ffn": 1}[sharing]
    assert {tuple(block.weight.shape) for block in blocks} == {(16, 16)}
    outputs_of(tmp_path / "half", texts_in(rows), None, 32, task_type="classification")


def test_the_importance_of_a_shared_neuron_is_the_sum_over_its_turns(rows: Path, tmp_path: Path) -> None:
    """The same weights, shared, and as equal copies that are none."""
    whole = write_tiny("albert", tmp_path / "albert", num_hidden_groups=4, limbeck_sharing="ffn")
    order = job(tmp_path / "measured", HALF, base=classifier(whole, rows, tmp_path / "whole"), rows=rows)
    task, tokenizer = task_and_tokenizer(order, "classification", "base")
    found = []
    for sharing in ("ffn", "none"):
        config = json.loads((tmp_path / "whole/config.json").read_text()) | {"limbeck_sharing": sharing}
        (tmp_path / "whole/config.json").write_text(json.dumps(config))
        model = load_classifier(tmp_path / "whole", task, torch.device("cpu")).eval()
        found.append(torch.stack(importance_of(order, NeuronSlice(**HALF), task, model, tokenizer)))
    assert [len(one) for one in found] == [1, 4]
    torch.testing.assert_close(found[0][0], found[1].sum(0))


def test_the_same_seed_keeps_the_same_neurons(rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny("bert", tmp_path / "bert"), rows, tmp_path / "whole")
    weights = {}
    for name, knobs in {
        "a": {},
        "b": {},
        "other rows": {"seed": 1, "rows": 5},
        "drawn": {"importance": "random"},
    }.items():
        prune_neurons(job(tmp_path / name, {**HALF, **knobs}, base=whole, rows=rows))
        weights[name] = (tmp_path / name / "model.safetensors").read_bytes()
    assert weights["a"] == weights["b"] and len(set(weights.values())) == 3


def test_windows_are_drawn_of_all_rows_and_whole_rows_as_ever() -> None:
    """Two rows in five windows of two tokens, of which one answers nothing."""
    knobs = NeuronSlice(**HALF | {"rows": 3, "seed": 4})
    ten, nothing = np.arange(10), np.zeros(10, np.int64)
    unit_S = np.array([0, 1, 2, 3, -1, -1, 4, 5, 6, 7])
    windows = Windows(np.array([0, 0, 0, 1, 1]), unit_S, np.array([4, 4]))
    cut = Encoded(ten, nothing, np.arange(0, 11, 2), windows=windows)
    found = {seed: drawn_rows(cut, 2, knobs.model_copy(update={"seed": seed})).tolist() for seed in range(20)}
    assert {one for drawn in found.values() for one in drawn} == {0, 1, 3, 4} and {
        len(one) for one in found.values()
    } == {3}
    whole = Encoded(ten, nothing, np.arange(0, 11, 2))
    assert drawn_rows(whole, 5, knobs).tolist() == sorted(np.random.default_rng(4).permutation(5)[:3].tolist())
    apart = Encoded(ten, nothing, np.arange(0, 11, 2), windows=Windows(windows.row_F, None, np.array([3, 2])))
    assert drawn_rows(apart, 2, knobs).tolist() == [0, 1], "rows whose units are read apart stay whole"


def test_a_family_with_other_blocks_is_refused(rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny("modernbert", tmp_path / "modernbert"), rows, tmp_path / "whole")
    with pytest.raises(ModelError, match="neurons of a model of type modernbert cannot be removed"):
        prune_neurons(job(tmp_path / "half", HALF, base=whole, rows=rows))
