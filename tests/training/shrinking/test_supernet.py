"""Real models as supernets: each shape is a prefix of one set of weights, learns in it, and is written as a plain
folder."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tasks.engine.job import Job
from tasks.errors import Interrupted, ModelError, RecipeError
from tasks.methods.pruning.sub_networks import DRAWS, ShapeAxes, SubShape, flops_of_token, sandwich
from tasks.recipe.knobs import Knobs
from tasks.recipe.makers.slices import (
    JudgedShapesSlice,
    NeuronSlice,
    ShapeSlice,
    SubNetworkSlice,
    SupernetSlice,
    WidthSlice,
)
from tasks.recipe.makers.supernets import SupernetTraining
from tasks.scoring.predict import outputs_of
from tasks.training import loop
from tasks.training.data.rows import read_task
from tasks.training.models.students import load_classifier
from tasks.training.models.supernet import Supernet, read_supernet
from tasks.training.objectives.sub_networks import SubNetwork
from tasks.training.shrinking.neuron_pruning import prune_neurons
from tasks.training.shrinking.supernet import score_shapes, train_in_sandwich, write_shape
from tasks.training.shrinking.width_pruning import cut_width
from tests.families import write_tiny
from tests.training.shrinking.test_vocabulary import classifier, texts_in

KNOBS: dict[str, Any] = {
    "task_type": "classification",
    "steps": 4,
    "batch_size": 8,
    "max_length": 32,
    "learning_rate": 1e-3,
    "precision": "fp32",
    "rows": 40,
    "strategy": "top",
    "width": [0.5, 1.0],
    "neurons": [0.5, 1.0],
}
PLACE = torch.device("cpu")


def job(output: Path, name: str, knobs: Knobs, **inputs: Path) -> Job:
    output.mkdir(exist_ok=True)
    order = {"job": name, "knobs": knobs.model_dump(mode="json"), "output": str(output)}
    order |= {"checkpoints": str(output.parent / f"{output.name}-kept")}
    return Job({**order, "inputs": {name: str(folder) for name, folder in inputs.items()}}, silent=True)


def trained(output: Path, whole: Path, rows: Path, **knobs: Any) -> dict[str, object]:
    return train_in_sandwich(job(output, "supernet", SupernetSlice(**{**KNOBS, **knobs}), base=whole, rows=rows))


def cut(output: Path, supernet: Path, rows: Path, **shape: Any) -> dict[str, object]:
    knobs = SubNetworkSlice(task_type="classification", max_length=32, **shape)
    return write_shape(job(output, "cut-supernet", knobs, supernet=supernet, rows=rows))


def answers(folder: Path, rows: Path) -> np.ndarray:
    return outputs_of(folder, texts_in(rows), None, 32, task_type="classification")["logits"]


@pytest.fixture(scope="module")
def whole(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    return classifier(write_tiny("bert", folder / "bert"), rows, folder / "whole")


@pytest.fixture(scope="module")
def still(whole: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A supernet that hardly learnt."""
    folder = tmp_path_factory.mktemp("still")
    trained(folder, whole, rows, steps=1, learning_rate=1e-12, weight_decay=0.0)
    return folder


@pytest.fixture(scope="module")
def taught(whole: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught")
    assert trained(folder, whole, rows)["shapes"] == 2 * 2 * len(load(whole, rows).bert.encoder.layer)
    return folder


def load(folder: Path, rows: Path) -> Any:
    return load_classifier(folder, read_task(rows, "classification"), PLACE).eval()


def test_another_order_of_units_changes_no_answer(still: Path, whole: Path, rows: Path, tmp_path: Path) -> None:
    weights = [
        load_file(folder / "model.safetensors")["bert.encoder.layer.0.output.dense.weight"] for folder in (still, whole)
    ]
    assert not torch.equal(*weights)
    np.testing.assert_allclose(answers(still, rows), answers(whole, rows), atol=2e-5)
    cut(tmp_path / "all", still, rows)
    np.testing.assert_allclose(answers(tmp_path / "all", rows), answers(whole, rows), atol=2e-5)


def test_a_shape_that_hardly_learnt_is_the_pruned_model(still: Path, whole: Path, rows: Path, tmp_path: Path) -> None:
    common = {"task_type": "classification", "keep": 0.5, "importance": "taylor", "rows": 40, "max_length": 32}
    cut_width(job(tmp_path / "narrow", "width", WidthSlice(**common), base=whole, rows=rows))
    prune_neurons(job(tmp_path / "few", "neurons", NeuronSlice(**common), base=whole, rows=rows))
    for name, shape in (("narrow", {"width": 0.5}), ("few", {"neurons": 0.5})):
        cut(tmp_path / f"{name}-cut", still, rows, **shape)
        np.testing.assert_allclose(answers(tmp_path / f"{name}-cut", rows), answers(tmp_path / name, rows), atol=2e-5)


def test_a_folder_answers_as_the_shape_that_learnt(taught: Path, rows: Path, tmp_path: Path) -> None:
    facts = cut(tmp_path / "small", taught, rows, layers=1, width=0.5, neurons=0.5)
    supernet, task = read_supernet(load(taught, rows), taught), read_task(rows, "classification")
    shape = SubShape(1, int(str(facts["heads"])), int(str(facts["neurons"])))
    ids = torch.tensor([[2, 9, 12, 3], [2, 7, 3, 0]])
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    with torch.no_grad():
        within = SubNetwork(supernet, shape, task.head).eval().of(supernet, inputs)
        alone = load(tmp_path / "small", rows)(**inputs, output_hidden_states=True)
    assert torch.equal(within.outputs["logits"], alone.logits) and len(within.hidden) == 2
    config = json.loads((tmp_path / "small/config.json").read_text())
    assert (config["num_hidden_layers"], config["kept_layers"], facts["layers"]) == (1, [0], 1)
    assert len(config["limbeck_kept"]["dimensions"]) == config["hidden_size"] == facts["width"]
    assert len(config["limbeck_kept"]["heads"]) == 1


def test_every_width_has_norms_of_its_own_and_shares_all_other_weights(taught: Path, still: Path, rows: Path) -> None:
    supernet = read_supernet(load(taught, rows), taught)
    (width,) = map(int, supernet.norms)
    first = supernet.norms_of(width)
    norm = "bert.embeddings.LayerNorm.weight"
    assert first and set(first) == {name.replace(".", ":") for name in supernet.names_of_norms()}
    assert not torch.equal(first[norm.replace(".", ":")], dict(supernet.model.named_parameters())[norm][:width])
    shape = SubShape(1, supernet.heads * width // supernet.width, 8)
    views = supernet.values_of(shape, supernet.module_of(shape, "meta"))
    own = supernet.model.bert.encoder.layer[0].intermediate.dense.weight
    assert views["bert.encoder.layer.0.intermediate.dense.weight"].data_ptr() == own.data_ptr()
    before, after = (load_file(folder / "model.safetensors") for folder in (still, taught))
    assert all(not torch.equal(before[name], after[name]) for name in before if "LayerNorm" in name)


def test_scores_of_shapes_are_those_of_their_folders(taught: Path, rows: Path, tmp_path: Path) -> None:
    shapes = [{"layers": 1, "width": 0.5}, {"neurons": 0.5}, {}]
    knobs = JudgedShapesSlice(
        task_type="classification", shapes=tuple(ShapeSlice(**one) for one in shapes), max_length=32
    )
    found = score_shapes(job(tmp_path / "scores", "judge-shapes", knobs, supernet=taught, rows=rows))
    alone = [cut(tmp_path / str(number), taught, rows, **one)["selection_score"] for number, one in enumerate(shapes)]
    assert found["scores"] == alone == json.loads((tmp_path / "scores/shape_scores.json").read_text())


def test_a_training_that_is_stopped_goes_on_with_the_same_shapes(
    taught: Path, whole: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agree = loop.ProcessGroup.agree
    monkeypatch.setattr(loop.ProcessGroup, "agree", lambda self, asked, step, place: step == 2)
    with pytest.raises(Interrupted):
        trained(tmp_path / "b", whole, rows)
    monkeypatch.setattr(loop.ProcessGroup, "agree", agree)
    trained(tmp_path / "b", whole, rows)
    for name in ("model.safetensors", "norms.safetensors", "supernet.json"):
        assert (taught / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("draw", DRAWS)
def test_a_step_has_the_largest_and_the_smallest_shape_and_two_that_are_drawn(draw: str) -> None:
    axes = ShapeAxes((1, 2, 3), (2, 4), (8, 16, 32))
    drawn = DRAWS[draw](axes, 4)
    steps = [sandwich(axes, np.random.default_rng([0, step]), drawn) for step in range(400)]
    assert all(one[:2] == [SubShape(3, 4, 32), SubShape(1, 2, 8)] and len(one) <= 4 for one in steps)
    found = [shape for one in steps for shape in one[2:]]
    assert len(set(found)) == 3 * 2 * 3 - 2, "the ends are there already"
    assert sandwich(axes, np.random.default_rng([0, 7]), DRAWS[draw](axes, 4)) == steps[7]


def test_shapes_are_drawn_uniformly_in_flops_if_asked() -> None:
    """Of a space's shapes most are small: drawn by their index, three of four have less than half of the FLOPs."""
    axes = ShapeAxes((1, 2, 3, 4, 5, 6), (3, 6, 9, 12), (384, 768, 1152, 1536))
    least, most = (flops_of_token(one, 32) for one in (axes.smallest, axes.largest))
    assert most == 2 * 6 * (4 * 384**2 + 2 * 384 * 1536), "two FLOPs for each weight of a layer's six matrices"
    quarters = {}
    for name, made in DRAWS.items():
        drawn, source = made(axes, 32), np.random.default_rng(0)
        shares = [(flops_of_token(drawn(source), 32) - least) / (most - least) for _ in range(2000)]
        quarters[name] = np.histogram(shares, bins=[0, 0.25, 0.5, 0.75, 1.0001])[0] / 2000
    assert quarters["flops"] == pytest.approx([0.25] * 4, abs=0.06)
    assert quarters["shapes"][:2].sum() > 0.75 and quarters["shapes"][3] < 0.1


def test_the_draw_is_in_the_key_of_a_supernet_only_where_it_is_another() -> None:
    given = {"task_type": "classification"}
    assert "draw" not in SupernetSlice(**given).key_values()
    assert SupernetSlice(**given, draw="flops").key_values()["draw"] == "flops"
    with pytest.raises(ValueError, match="'shapes' or 'flops'"):
        SupernetTraining.model_validate({"draw": "index"})


def test_a_supernet_of_another_draw_learns_other_weights(whole: Path, rows: Path, tmp_path: Path, taught: Path) -> None:
    trained(tmp_path / "b", whole, rows, draw="flops", steps=6)
    trained(tmp_path / "c", whole, rows, draw="flops", steps=6)
    trained(tmp_path / "d", whole, rows, steps=6)
    first, again, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in "bcd")
    assert first == again != other


def test_layers_that_share_weights_and_depths_that_did_not_learn_are_refused(
    taught: Path, rows: Path, tmp_path: Path
) -> None:
    """A part that all layers share, in layers of their own, ended in a KeyError."""
    partly = {"num_hidden_groups": 4, "limbeck_sharing": "attention"}
    part = classifier(write_tiny("albert", tmp_path / "part", **partly), rows, tmp_path / "partly")
    with pytest.raises(ModelError, match="share their weights"):
        trained(tmp_path / "b", part, rows, width=[1.0])
    albert = classifier(write_tiny("albert", tmp_path / "albert"), rows, tmp_path / "shared")
    with pytest.raises(ModelError, match="share their weights"):
        trained(tmp_path / "no", albert, rows, width=[1.0])
    with pytest.raises(RecipeError, match="layers, and 99 are asked"):
        cut(tmp_path / "deep", taught, rows, layers=99)


def test_a_supernet_learns_from_hidden_states_only_if_asked(whole: Path, rows: Path, tmp_path: Path) -> None:
    for weight in (0.0, 1.0):
        trained(tmp_path / str(weight), whole, rows, hidden_weight=weight)
    first, second = (load_file(tmp_path / str(weight) / "model.safetensors") for weight in (0.0, 1.0))
    assert any(not torch.equal(first[name], second[name]) for name in first)
    model = load(whole, rows)
    assert (
        Supernet(copy.deepcopy(model), {1: [0]}, [model.config.num_attention_heads]).norms_of(model.config.hidden_size)
        == {}
    )


def test_parts_drop_what_the_knobs_say_and_not_what_the_model_did(taught: Path, rows: Path) -> None:
    supernet, task = read_supernet(load(taught, rows), taught), read_task(rows, "classification")
    supernet.model.config.hidden_dropout_prob = supernet.model.config.attention_probs_dropout_prob = 0.5
    supernet.train()
    ids = torch.tensor([[2, 9, 12, 3]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    alike = []
    for dropout in (0.0, None):
        part = SubNetwork(supernet, SubShape(1, supernet.heads, 16), task.head, dropout)
        first, second = (part.of(supernet, inputs).outputs["logits"] for _ in range(2))
        alike.append(torch.equal(first, second))
    assert alike == [True, False]
