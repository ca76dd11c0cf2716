"""What is kept of a teacher's layers is what a live teacher shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.recipe.slices import IntermediateSlice, SignalSlice
from tasks.recipe.students import Shape
from tasks.task_types.heads import HEADS
from tasks.training.data.epochs import Epoch, Indices, Variants
from tasks.training.data.rows import Encoded, collate, encode, load_tokenizer, read_rows, read_task
from tasks.training.distill import distill_intermediate
from tasks.training.models.students import build_student, freeze, load_classifier
from tasks.training.objectives import signals
from tasks.training.objectives.layers import Matcher
from tasks.training.objectives.signals import record_signals, recorded

CPU = torch.device("cpu")


def order(job: str, knobs: Any, output: Path, **inputs: Path) -> Job:
    output.mkdir(exist_ok=True, parents=True)
    return Job(
        {
            "job": job,
            "knobs": knobs.model_dump(mode="json"),
            "inputs": {name: str(path) for name, path in inputs.items()},
            "output": str(output),
        }
    )


def record(rows: Path, bert: Path, output: Path, **knobs: Any) -> dict[str, Any]:
    return record_signals(
        order(
            "signals",
            SignalSlice(task_type="classification", layers=2, max_length=16, precision="fp32", **knobs),
            output,
            rows=rows,
            teacher=bert,
        )
    )


def reopened(kept: Path, ids: np.ndarray) -> Any:
    found = recorded(Job({"job": "intermediate", "inputs": {"signals": str(kept)}, "output": str(kept)}), ids)
    assert found is not None
    return found


@pytest.mark.parametrize("attention", [1.0, 0.0])
def test_the_loss_by_kept_signals_is_the_loss_beside_a_live_teacher(
    rows: Path, tiny_bert: Path, tmp_path: Path, attention: float
) -> None:
    assert record(rows, tiny_bert, tmp_path / "kept", attention=bool(attention)) == {"kept": True, "rows": 196}
    task, tokenizer = read_task(rows, "classification"), load_tokenizer(tiny_bert)
    train = read_rows(rows, "train", task.head)
    encoded = encode(tokenizer, train.texts, None, 16)
    teacher = freeze(load_classifier(tiny_bert, task, CPU))
    knobs = IntermediateSlice(task_type="classification", matching={"attention": attention}).matching
    matcher = Matcher(build_student("random", teacher, Shape(layers=2), seed=3).eval(), teacher, knobs)
    kept, epoch = reopened(tmp_path / "kept", train.ids_N), Epoch(0, encoded, [])
    for batch in (np.asarray([5, 0, 17, 30]), np.arange(60)):
        tensors = collate(encoded, batch, tokenizer.pad_token_id, CPU)
        live, stored = matcher.loss(tensors).mean(), matcher.loss(tensors, kept.of(Indices(epoch, batch), CPU)).mean()
        assert float(live) > 0
        torch.testing.assert_close(stored, live, rtol=1e-4, atol=0)
        other = matcher.loss(tensors, kept.of(Indices(epoch, batch[::-1]), CPU)).mean() if len(batch) == 4 else live * 2
        assert abs(float(other) - float(live)) > 4e-4 * float(live), (
            "rows must not be interchangeable, or this test shows nothing"
        )


def indices(row: int, variants: Variants | None = None) -> Indices:
    """Return a batch of one row, of which only the number is read."""
    nothing = Encoded(np.zeros(0), np.zeros(0), np.zeros(1))
    return Indices(Epoch(0, nothing, [], variants=variants), np.asarray([row]))


def test_kept_signals_are_refused_for_a_text_that_was_varied(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    """They are of the rows' own text: beside a variant of as many tokens they would be taken for its signals."""
    record(rows, tiny_bert, tmp_path / "kept")
    train = read_rows(rows, "train", HEADS["classification"])
    kept = reopened(tmp_path / "kept", train.ids_N)
    variants = Variants(np.arange(len(train)) == 3, train.texts, None)
    assert kept.of(indices(4, variants), CPU).hidden
    with pytest.raises(ModelError, match="this batch has variants of it; set keep_signals: never"):
        kept.of(indices(3, variants), CPU)


def test_kept_signals_are_found_by_row_id_not_by_position(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    record(rows, tiny_bert, tmp_path / "kept")
    ids = read_rows(rows, "train", HEADS["classification"]).ids_N
    whole, turned = reopened(tmp_path / "kept", ids), reopened(tmp_path / "kept", ids[::-1].copy())
    ours, theirs = whole.of(indices(3), CPU), turned.of(indices(len(ids) - 4), CPU)
    assert all(torch.equal(ours.hidden[layer], theirs.hidden[layer]) for layer in ours.hidden)
    with pytest.raises(ModelError, match="lack 1 of the student's rows"):
        reopened(tmp_path / "kept", np.asarray([10**6]))


def test_beyond_the_budget_nothing_is_kept_and_students_learn_live(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    facts = record(rows, tiny_bert, tmp_path / "none", signal_budget_gb=1e-4)
    assert not facts["kept"] and "signal_budget_gb is 0.0001" in facts["reason"]
    assert json.loads((tmp_path / "none" / "index.json").read_text()) == {"kept": False}
    record(rows, tiny_bert, tmp_path / "kept")
    knobs = IntermediateSlice(
        task_type="classification",
        steps=6,
        batch_size=16,
        max_length=16,
        precision="fp32",
        shape=Shape(layers=2),
        start="random",
        learning_rate=1e-3,
    )
    weights = {}
    for name, kept in (
        ("live", {}),
        ("none", {"signals": tmp_path / "none"}),
        ("kept", {"signals": tmp_path / "kept"}),
    ):
        distill_intermediate(
            order("intermediate", knobs, tmp_path / f"student-{name}", rows=rows, teacher=tiny_bert, **kept)
        )
        from safetensors.torch import load_file

        weights[name] = load_file(tmp_path / f"student-{name}" / "model.safetensors")
    assert all(torch.equal(weights["live"][name], value) for name, value in weights["none"].items())
    gaps = [float((weights["live"][name] - value).abs().max()) for name, value in weights["kept"].items()]
    assert 0 < max(gaps) < 1e-2  # 16 bits are not 32, and the student hardly notices


def test_what_does_not_fit_16_bits_is_asked_live(
    rows: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "LARGEST", 0.5)
    facts = record(rows, tiny_bert, tmp_path / "none")
    assert not facts["kept"] and "too large for 16 bits" in facts["reason"]
    assert [path.name for path in (tmp_path / "none").iterdir()] == ["index.json"]


def test_a_disk_that_fills_is_no_crash(
    rows: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))  # no file of this process may grow beyond this
    try:
        with pytest.raises(OSError, match="File too large"):
            record(rows, tiny_bert, tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_keeping_is_decided_by_a_students_own_knobs() -> None:
    from tasks.recipe.distillation import Intermediate, TaskDistillation

    auto = TaskDistillation()
    assert auto.keeps(Intermediate(epochs=2), augmented=False)
    assert not auto.keeps(Intermediate(epochs=2), augmented=True)
    assert not auto.keeps(Intermediate(epochs=1), augmented=False)
    assert not auto.keeps(Intermediate(epochs=2, steps=50), augmented=False)
    assert TaskDistillation(keep_signals="always").keeps(Intermediate(steps=50), augmented=False)
    assert not TaskDistillation(keep_signals="always").keeps(
        Intermediate(matching={"formula": "paper"}), augmented=False
    )
    assert not TaskDistillation(keep_signals="never").keeps(Intermediate(epochs=2), augmented=False)
