"""Real models that are trained for static ranges: folders that state them, controls that keep them, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tasks.engine.job import Job
from tasks.errors import Interrupted, ModelError
from tasks.methods.pruning.silent_heads import silence_heads
from tasks.methods.quantization.learned_ranges import STATED_RANGES
from tasks.recipe.makers.slices import StaticQuantizationSlice
from tasks.training import loop
from tasks.training.data.rows import load_tokenizer
from tasks.training.models.fake_quantization import linear_maps
from tasks.training.models.fixed_ranges import FixedRanges, measured_ranges
from tasks.training.models.students import save_model
from tasks.training.shrinking.static_ranges import train_on_static_ranges
from tests.families import write_tiny
from tests.training.shrinking.test_quantization import KNOBS, loaded
from tests.training.shrinking.test_vocabulary import classifier

IDS_BT = torch.tensor([[2, 9, 12, 30, 7, 3]])
LONE = {"input_ids": IDS_BT, "attention_mask": torch.ones_like(IDS_BT)}


@pytest.fixture(scope="module")
def whole(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    return classifier(write_tiny("bert", folder / "bert", **shape), rows, folder / "whole")


def trained(output: Path, start: Path, rows: Path, **knobs: Any) -> dict[str, object]:
    output.mkdir(exist_ok=True)
    given = StaticQuantizationSlice(**{**KNOBS, "ranges": "trained", **knobs}).model_dump(mode="json")
    order = {"job": "static-quantization", "knobs": given, "output": str(output)}
    order |= {"checkpoints": str(output.parent / "kept"), "inputs": {"start": str(start), "rows": str(rows)}}
    return train_on_static_ranges(Job(order, silent=True))


def stated(folder: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = json.loads((folder / "config.json").read_text())[STATED_RANGES]
    return found


def test_a_folder_states_a_range_for_each_map_and_has_no_weights_more(whole: Path, rows: Path, tmp_path: Path) -> None:
    facts = trained(tmp_path / "a", whole, rows)
    model = loaded(tmp_path / "a", rows)
    maps = {name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)}
    assert set(stated(tmp_path / "a")) == maps
    assert all(step > 0 and zero in range(256) for step, zero in stated(tmp_path / "a").values())
    before, after = (load_file(folder / "model.safetensors") for folder in (whole, tmp_path / "a"))
    assert {name: one.shape for name, one in before.items()} == {name: one.shape for name, one in after.items()}
    assert facts["selection_score"] is not None
    assert facts["note"] == "weights of 8 bits for int8, rounded in training, with trained static ranges"


def test_steps_learn_and_the_control_begins_with_the_same_and_keeps_them(
    whole: Path, rows: Path, tmp_path: Path
) -> None:
    for ranges in ("trained", "calibrated"):
        trained(tmp_path / ranges, whole, rows, ranges=ranges, steps=3)
        trained(tmp_path / f"{ranges}-longer", whole, rows, ranges=ranges)
    kept = stated(tmp_path / "calibrated")
    assert kept == stated(tmp_path / "calibrated-longer")
    learned, longer = stated(tmp_path / "trained"), stated(tmp_path / "trained-longer")
    assert {name: zero for name, (_, zero) in learned.items()} == {name: zero for name, (_, zero) in kept.items()}
    assert all(learned[name][0] != kept[name][0] != longer[name][0] for name in kept)
    assert all(abs(learned[name][0] - kept[name][0]) < 4e-3 for name in kept), "a step of Adam is the rate at most"


def test_a_training_in_full_precision_is_calibrated_on_the_model_that_it_ends_with(
    whole: Path, rows: Path, tmp_path: Path
) -> None:
    trained(tmp_path / "a", whole, rows, ranges="calibrated")
    facts = trained(tmp_path / "b", whole, rows, ranges="calibrated", rounding="after-training")
    assert stated(tmp_path / "a") != stated(tmp_path / "b") and "rounded after training" in str(facts["note"])


def test_a_training_that_is_stopped_resumes_with_its_ranges(
    whole: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "a", whole, rows)
    agree = loop.ProcessGroup.agree
    monkeypatch.setattr(loop.ProcessGroup, "agree", lambda self, asked, step, place: step == 3)
    with pytest.raises(Interrupted):
        trained(tmp_path / "b", whole, rows)
    monkeypatch.setattr(loop.ProcessGroup, "agree", agree)
    trained(tmp_path / "b", whole, rows)
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_neighbours_and_padding_change_no_answer_and_no_range(whole: Path, rows: Path) -> None:
    model = loaded(whole, rows)
    padded = {name: torch.nn.functional.pad(value, (0, 4)) for name, value in LONE.items()}
    ranges = measured_ranges(model, "int8", lambda: model(**LONE))
    again = measured_ranges(model, "int8", lambda: model(**padded))
    assert {name: one.zero for name, one in ranges.items()} == {name: one.zero for name, one in again.items()}
    assert [one.step for one in again.values()] == pytest.approx([one.step for one in ranges.values()], rel=1e-5)
    FixedRanges(model, "int8", ranges)
    with torch.no_grad():
        alone, beside = model(**LONE).logits, model(**padded).logits
    np.testing.assert_allclose(alone.numpy(), beside.numpy(), atol=1e-6)


def test_what_the_maps_read_has_256_values_at_most(whole: Path, rows: Path) -> None:
    model = loaded(whole, rows)
    ranges = measured_ranges(model, "int8", lambda: model(**LONE))
    FixedRanges(model, "int8", ranges)
    read: list[tuple[Any, torch.Tensor]] = []
    for one in linear_maps(model, "int8"):
        one.register_forward_pre_hook(lambda module, given: read.append((module, given[0])))
    with torch.no_grad():
        model(**LONE)
    names = {one: name for name, one in model.named_modules()}
    assert len(read) == len(ranges)
    for module, states in read:
        codes = states / ranges[names[module]].step
        assert float((codes - codes.round()).abs().max()) < 1e-3


def test_a_model_with_pruned_heads_and_another_family_are_refused(whole: Path, rows: Path, tmp_path: Path) -> None:
    model = loaded(whole, rows)
    silence_heads(model, [[0]])
    save_model(model, load_tokenizer(whole), tmp_path / "pruned")
    with pytest.raises(ModelError, match="heads of this model were pruned, .* set ranges: dynamic"):
        trained(tmp_path / "a", tmp_path / "pruned", rows)
    start = classifier(write_tiny("xlnet", tmp_path / "xlnet"), rows, tmp_path / "start")
    with pytest.raises(ModelError, match="a model of the family xlnet cannot be trained for few bits"):
        trained(tmp_path / "b", start, rows)
