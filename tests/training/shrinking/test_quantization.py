"""Real models that are trained for few bits: a plain folder of rounded weights, as many values as the bits allow."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tasks.engine.job import Job
from tasks.errors import Interrupted, ModelError
from tasks.methods.pruning.silent_heads import silence_heads
from tasks.methods.quantization.grids import as_blocks
from tasks.ports.rows.row_files import TASK
from tasks.recipe.makers.slices import QuantizationSlice
from tasks.task_types.texts.truncation import stated_truncation
from tasks.training import loop
from tasks.training.data.rows import load_tokenizer, read_task
from tasks.training.models.fake_quantization import FakeQuantization, linear_maps
from tasks.training.models.students import load_classifier, save_model
from tasks.training.shrinking.quantization import train_on_grid
from tests.families import write_tiny
from tests.training.shrinking.test_vocabulary import classifier

KNOBS: dict[str, Any] = {
    "task_type": "classification",
    "steps": 6,
    "batch_size": 8,
    "max_length": 32,
    "learning_rate": 1e-3,
    "precision": "fp32",
}
VALUES: dict[Any, int] = {3: 8, "ternary": 3}


def job(output: Path, knobs: dict[str, Any], **inputs: Path) -> Job:
    output.mkdir(exist_ok=True)
    given = QuantizationSlice(**{**KNOBS, **knobs}).model_dump(mode="json")
    order = {"job": "quantization", "knobs": given, "output": str(output), "checkpoints": str(output.parent / "kept")}
    return Job({**order, "inputs": {name: str(folder) for name, folder in inputs.items()}}, silent=True)


def loaded(folder: Path, rows: Path) -> Any:
    return load_classifier(folder, read_task(rows, "classification"), torch.device("cpu")).eval()


@pytest.fixture(scope="module")
def whole(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    shape = {"hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 1}
    return classifier(write_tiny("bert", folder / "bert", **shape), rows, folder / "whole")


@pytest.mark.parametrize("bits", [3, "ternary"])
def test_every_block_has_the_values_that_its_bits_allow(bits: Any, whole: Path, rows: Path, tmp_path: Path) -> None:
    knobs = {"format": "four-bit", "bits": bits}
    facts = train_on_grid(job(tmp_path / "a", knobs, start=whole, rows=rows))
    assert facts["selection_score"] is not None and "for four-bit, rounded in training" in str(facts["note"])
    before, after = (load_file(folder / "model.safetensors") for folder in (whole, tmp_path / "a"))
    assert {name: value.shape for name, value in before.items()} == {name: value.shape for name, value in after.items()}
    for one in linear_maps(loaded(tmp_path / "a", rows), "four-bit"):
        blocks = as_blocks(one.weight.detach()).flatten(0, -2)
        assert max(len(block.unique()) for block in blocks) <= VALUES[bits]
    head, moved = (one["classifier.weight"] for one in (before, after))
    assert len(moved.unique()) == moved.numel() and not torch.equal(head, moved), "a narrow head learns as it is"


def test_int8_rounds_outputs_tables_and_the_head_and_the_control_learns_without(
    whole: Path, rows: Path, tmp_path: Path
) -> None:
    made = {}
    for rounding in ("while-training", "after-training"):
        folder = tmp_path / rounding
        facts = train_on_grid(job(folder, {"rounding": rounding, "signal": "labels"}, start=whole, rows=rows))
        model = loaded(folder, rows)
        steps = model.classifier.weight.abs().amax(1, keepdim=True) / 127
        codes = (model.classifier.weight / steps).detach()
        assert float((codes - codes.round()).abs().max()) < 1e-3 and facts["bits"] == 8
        assert len(model.bert.embeddings.word_embeddings.weight.unique()) <= 256
        made[rounding] = load_file(folder / "model.safetensors")
    first, second = made.values()
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_the_score_is_that_of_the_graph_and_not_that_of_the_folder(whole: Path, rows: Path) -> None:
    model, ids = loaded(whole, rows), torch.tensor([[2, 9, 12, 3]])
    with torch.no_grad():
        plain = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        served = FakeQuantization(model, "four-bit", "2")
        rounded = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        served.finish()
        folder = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    assert not torch.equal(plain, rounded) and not torch.equal(rounded, folder)


def test_a_training_that_is_stopped_resumes_on_its_grid(
    whole: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs = {"format": "four-bit", "bits": 2}
    train_on_grid(job(tmp_path / "a", knobs, start=whole, rows=rows))
    agree = loop.ProcessGroup.agree
    monkeypatch.setattr(loop.ProcessGroup, "agree", lambda self, asked, step, place: step == 3)
    with pytest.raises(Interrupted):
        train_on_grid(job(tmp_path / "b", knobs, start=whole, rows=rows))
    monkeypatch.setattr(loop.ProcessGroup, "agree", agree)
    train_on_grid(job(tmp_path / "b", knobs, start=whole, rows=rows))
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_learned_steps_move_and_are_held_at_the_end(whole: Path, rows: Path) -> None:
    model = loaded(whole, rows)
    served = FakeQuantization(model, "four-bit", "3")
    served.begin(8, 10)
    [*steps] = served.learned_steps
    with torch.no_grad():
        steps[0].fill_(-1.0)
        served.after_step(9)
        assert float(steps[0].min()) > 0, "a step is never below 0"
        served.begin(9, 10)
        held = [one.clone() for one in steps]
        steps[0].fill_(5.0)
        served.after_step(10)
    assert all(torch.equal(one, value) for one, value in zip(steps, held, strict=True))


def test_a_family_whose_graph_rounds_more_is_refused_in_a_sentence(rows: Path, tmp_path: Path) -> None:
    start = classifier(write_tiny("xlnet", tmp_path / "xlnet"), rows, tmp_path / "whole")
    with pytest.raises(
        ModelError, match="a model of the family xlnet cannot be trained for few bits, because its graph"
    ):
        train_on_grid(job(tmp_path / "a", {}, start=start, rows=rows))


def test_blocks_of_a_model_with_pruned_heads_are_those_of_its_graph_or_refused(
    whole: Path, rows: Path, tmp_path: Path
) -> None:
    shape = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 72, "num_hidden_layers": 1}
    wide = classifier(write_tiny("bert", tmp_path / "bert", **shape), rows, tmp_path / "wide")
    for start in (whole, wide):
        model = loaded(start, rows)
        silence_heads(model, [[0]])
        save_model(model, load_tokenizer(start), tmp_path / f"{start.name}-pruned")
    knobs = {"steps": 1, "signal": "labels", "format": "four-bit"}
    said = r"heads of this model were pruned, each of \d+ numbers, .* 32 weights which share a step here"
    with pytest.raises(ModelError, match=said):
        train_on_grid(job(tmp_path / "a", knobs, start=tmp_path / "whole-pruned", rows=rows))
    train_on_grid(job(tmp_path / "b", knobs | {"format": "int8"}, start=tmp_path / "whole-pruned", rows=rows))
    train_on_grid(job(tmp_path / "c", knobs, start=tmp_path / "wide-pruned", rows=rows))


def test_a_start_that_does_not_know_how_the_task_cuts_its_pairs_learns_it(
    whole: Path, rows: Path, tmp_path: Path
) -> None:
    cut = shutil.copytree(rows, tmp_path / "rows")
    facts = json.loads((cut / TASK).read_text())
    (cut / TASK).write_text(json.dumps(facts | {"truncate": "second"}))
    train_on_grid(job(tmp_path / "a", {"steps": 1, "signal": "labels"}, start=whole, rows=cut))
    assert stated_truncation(load_tokenizer(tmp_path / "a")) == "only_second"
