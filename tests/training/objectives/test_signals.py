"""What is kept of a teacher's layers is what a live teacher shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.recipe.layer_storage import StorageShape
from tasks.recipe.slices import IntermediateSlice, SignalSlice
from tasks.recipe.students import Shape
from tasks.task_types.heads import HEADS
from tasks.training.data.encoded import collate, encode
from tasks.training.data.epochs import Epoch, Indices, Variants
from tasks.training.data.rows import load_tokenizer, read_rows, read_task
from tasks.training.distill import distill_intermediate
from tasks.training.models.students import build_student, freeze, load_classifier
from tasks.training.objectives import signal_files
from tasks.training.objectives.capture import Signals
from tasks.training.objectives.layers import LayerObjective
from tasks.training.objectives.signal_files import size_of
from tasks.training.objectives.signals import TeacherSignals, record_signals, recorded

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


@pytest.mark.parametrize(("attention", "bits", "near"), [(1.0, 16, 1e-4), (0.0, 16, 1e-4), (1.0, 8, 5e-3)])
def test_the_loss_by_kept_signals_is_the_loss_beside_a_live_teacher(
    rows: Path, tiny_bert: Path, tmp_path: Path, attention: float, bits: int, near: float
) -> None:
    facts = record(rows, tiny_bert, tmp_path / "kept", attention=bool(attention), signal_bits=bits)
    assert facts == {"kept": True, "rows": 196}
    scene = scene_of(rows, tiny_bert, {"attention": attention})
    kept, matcher = reopened(tmp_path / "kept", scene.train.ids_N), scene.matcher
    for batch in (np.asarray([5, 0, 17, 30]), np.arange(60)):
        tensors = collate(scene.encoded, batch, scene.pad, CPU)
        live, stored = matcher.loss(tensors).mean(), matcher.loss(tensors, kept.of(batch, CPU)).mean()
        assert float(live) > 0
        torch.testing.assert_close(stored, live, rtol=near, atol=0)
        other = matcher.loss(tensors, kept.of(batch[::-1], CPU)).mean() if len(batch) == 4 else live * 2
        assert abs(float(other) - float(live)) > 4e-4 * float(live), (
            "rows must not be interchangeable, or this test shows nothing"
        )


def scene_of(rows: Path, bert: Path, matching: dict[str, Any] | None = None) -> SimpleNamespace:
    """Return a teacher, the objective of a student of two layers, and the training rows with their tokens."""
    task, tokenizer = read_task(rows, "classification"), load_tokenizer(bert)
    train = read_rows(rows, "train", task.head)
    teacher = freeze(load_classifier(bert, task, CPU))
    knobs = IntermediateSlice(task_type="classification", matching=matching or {}).matching
    matcher = LayerObjective(build_student("random", teacher, Shape(layers=2), seed=3).eval(), teacher, knobs)
    encoded = encode(tokenizer, train.texts, None, 16)
    return SimpleNamespace(
        train=train, tokenizer=tokenizer, matcher=matcher, encoded=encoded, pad=tokenizer.pad_token_id
    )


@pytest.mark.parametrize("changed", [[1, 3], [0], [0, 1, 2, 3]])
def test_of_a_batch_with_variants_the_teacher_runs_for_these_alone(
    rows: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: list[int]
) -> None:
    """What is stored is of the rows' own text: beside a variant of as many tokens it would be taken for its signals."""
    record(rows, tiny_bert, tmp_path / "kept")
    scene = scene_of(rows, tiny_bert)
    batch, texts = np.asarray([5, 0, 17, 30]), list(scene.train.texts)
    for at in changed:
        texts[batch[at]] = VARIANTS[at]
    varied = np.isin(np.arange(len(texts)), batch[changed])
    epoch = Epoch(0, encode(scene.tokenizer, texts, None, 16), [], variants=Variants(varied, texts, None))
    longer = np.sign(epoch.encoded.lengths_N - scene.encoded.lengths_N)[batch[changed]]
    assert longer.tolist() == [LONGER[at] for at in changed]
    teacher = TeacherSignals(reopened(tmp_path / "kept", scene.train.ids_N), scene.matcher.of_teacher, scene.pad)
    seen = []
    computed = TeacherSignals.computed
    monkeypatch.setattr(
        TeacherSignals, "computed", lambda self, batch: seen.append(len(batch.ids_BT)) or computed(self, batch)
    )
    tensors = collate(epoch.encoded, batch, scene.pad, CPU)
    mixed = teacher.of(Indices(epoch, batch), tensors)
    assert seen == [len(changed)]
    live = computed(teacher, tensors)
    torch.testing.assert_close(
        scene.matcher.loss(tensors, mixed).mean(), scene.matcher.loss(tensors).mean(), rtol=1e-4, atol=0
    )
    stale = teacher.of(Indices(replace(epoch, variants=None), batch), tensors)
    # Two targets may be equally far from a random student, so variants are told apart by their signals, not by a loss.
    for layer in range(3):
        assert rows_that_differ(mixed, live, layer, tensors.mask_BT, by=2e-3) == []
        assert rows_that_differ(stale, live, layer, tensors.mask_BT, by=0.5) == changed, "or a variant would not matter"
        assert rows_that_differ(mixed, stale, layer, tensors.mask_BT, by=0) == changed, "the others are read"


VARIANTS = (
    "a truly awful meal , and the film was poor",
    "bad film",
    "a truly bad and awful plot",
    "a film good was 38 is fine",
)
LONGER = (1, -1, 1, 0)
"""Whether these have more tokens than the rows that they replace (1), fewer (-1) or as many (0)."""


def rows_that_differ(one: Signals, other: Signals, layer: int, mask_BT: torch.Tensor, *, by: float) -> list[int]:
    """Return the positions of a batch whose valid tokens have states that differ by more than ``by`` after one of the
    mapped layers."""
    assert one.hidden.keys() == other.hidden.keys()
    mapped = sorted(one.hidden)[layer]
    gaps_BT = (one.hidden[mapped] - other.hidden[mapped]).abs().amax(-1) * mask_BT
    return (gaps_BT.amax(1) > by).nonzero().flatten().tolist()


def test_kept_signals_are_found_by_row_id_not_by_position(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    record(rows, tiny_bert, tmp_path / "kept")
    ids = read_rows(rows, "train", HEADS["classification"]).ids_N
    whole, turned = reopened(tmp_path / "kept", ids), reopened(tmp_path / "kept", ids[::-1].copy())
    ours, theirs = whole.of(np.asarray([3]), CPU), turned.of(np.asarray([len(ids) - 4]), CPU)
    assert all(torch.equal(ours.hidden[layer], theirs.hidden[layer]) for layer in ours.hidden)
    with pytest.raises(ModelError, match="lack 1 of the student's rows"):
        reopened(tmp_path / "kept", np.asarray([10**6]))


@pytest.mark.parametrize("bits", [16, 8])
def test_the_files_are_as_large_as_the_plan_said(rows: Path, tiny_bert: Path, tmp_path: Path, bits: int) -> None:
    """A plan decides by this size whether the disk has room."""
    record(rows, tiny_bert, tmp_path / "kept", signal_bits=bits)
    index = json.loads((tmp_path / "kept" / "index.json").read_text())
    shape = StorageShape(len(index["hidden"]), len(index["attention"]), index["width"], index["heads"], bits)
    written = sum(path.stat().st_size for path in (tmp_path / "kept").glob("*.raw"))
    assert written == shape.bytes(size_of(np.asarray(index["lengths"])))


def test_with_8_bits_a_value_is_as_near_as_its_scale(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    ids = read_rows(rows, "train", HEADS["classification"]).ids_N
    for bits in (16, 8):
        record(rows, tiny_bert, tmp_path / f"kept-{bits}", signal_bits=bits)
    exact, near = (reopened(tmp_path / f"kept-{bits}", ids).of(np.arange(40), CPU) for bits in (16, 8))
    for one, other in ((exact.hidden, near.hidden), (exact.scores, near.scores)):
        for layer, values in one.items():
            gap = (values - other[layer]).abs()
            assert 0 < float(gap.max()) < float(values.abs().max()) / 60
            assert float(gap.square().mean()) < 2e-4 * float(values.square().mean())


def test_a_student_of_kept_signals_is_nearly_that_of_a_live_teacher(
    rows: Path, tiny_bert: Path, tmp_path: Path
) -> None:
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
    weights, counts = {}, {}
    for name, kept in (("live", {}), ("kept", {"signals": tmp_path / "kept"})):
        facts = distill_intermediate(
            order("intermediate", knobs, tmp_path / f"student-{name}", rows=rows, teacher=tiny_bert, **kept)
        )
        counts[name] = facts["teacher_rows_read"], facts["teacher_rows_computed"]
        weights[name] = load_file(tmp_path / f"student-{name}" / "model.safetensors")
    gaps = [float((weights["live"][name] - value).abs().max()) for name, value in weights["kept"].items()]
    assert 0 < max(gaps) < 1e-2  # 16 bits are not 32, and the student hardly notices
    assert counts == {"live": (0, 96), "kept": (96, 0)}


def test_what_does_not_fit_16_bits_is_asked_live(
    rows: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal_files, "LARGEST", 0.5)
    facts = record(rows, tiny_bert, tmp_path / "none")
    assert not facts["kept"] and "too large to be stored" in facts["reason"]
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
