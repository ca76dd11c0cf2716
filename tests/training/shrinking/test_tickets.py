"""Trainings of a lottery on a tiny real model: what goes back to the early step, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.recipe.makers.slices import TicketSlice
from tasks.training.data.rows import read_task
from tasks.training.models.snapshots import read_snapshot
from tasks.training.models.students import load_classifier
from tasks.training.shrinking.tickets import train_round
from tasks.training.shrinking.weight_pruning import matrices_of
from tests.families import write_tiny
from tests.training.shrinking.test_vocabulary import classifier
from tests.training.shrinking.test_weight_pruning import KNOBS

TRAINING = {name: KNOBS[name] for name in KNOBS if name not in ("keep", "every")} | {"steps": 6}
IDLE = {"learning_rate": 1e-30, "weight_decay": 0.0, "left": 0.25}
"""A training that changes nothing shows what it began with."""


def job(output: Path, knobs: dict[str, Any], **inputs: Path) -> Job:
    output.mkdir()
    given = TicketSlice(**{**TRAINING, **knobs}).model_dump(mode="json")
    order = {"job": "ticket", "knobs": given, "output": str(output), "checkpoints": str(output.parent / "kept")}
    return Job({**order, "inputs": {name: str(folder) for name, folder in inputs.items()}}, silent=True)


@pytest.fixture(scope="module")
def lottery(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model, and the first training of it, with the weights of step 2."""
    folder = tmp_path_factory.mktemp("lottery")
    whole = classifier(write_tiny("bert", folder / "bert"), rows, folder / "whole")
    train_round(job(folder / "dense", {"rewind_to": 2}, start=whole, rows=rows))
    return {"start": whole, "dense": folder / "dense", "before": folder / "dense", "rows": rows}


def weights_in(folder: Path, rows: Path) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Return all weights of a written model, and those of the layers' matrices."""
    model = load_classifier(folder, read_task(rows, "classification"), torch.device("cpu"))
    return model.state_dict(), [matrix.weight.detach() for matrix in matrices_of(model)]


def test_a_ticket_begins_with_the_early_encoder_and_the_trained_head(lottery: dict[str, Path], tmp_path: Path) -> None:
    rows = lottery["rows"]
    facts = train_round(job(tmp_path / "ticket", {**IDLE, "rewind_to": 2}, **lottery))
    assert facts["steps"] == TRAINING["steps"] - 2, "with those before the snapshot as many as the dense model"
    begun, matrices = weights_in(tmp_path / "ticket", rows)
    early, trained = read_snapshot(lottery["dense"], "rewound"), weights_in(lottery["dense"], rows)
    assert facts["weights_left"] == facts["weights_before"] // 4
    least = torch.cat([one.abs().flatten() for one in trained[1]]).kthvalue(int(0.75 * facts["weights_before"])).values
    for ours, theirs in zip(matrices, trained[1], strict=True):
        assert torch.equal(ours != 0, theirs.abs() > least)
    for name, value in begun.items():
        there = value != 0
        expected = early[name] if name.startswith("bert.") else trained[0][name]
        assert torch.equal(value[there], expected[there]), name
    assert any(not torch.equal(early[name], trained[0][name]) for name in early if not name.startswith("bert."))
    assert not torch.equal(
        early["bert.pooler.dense.weight"], weights_in(lottery["start"], rows)[0]["bert.pooler.dense.weight"]
    )


def test_each_control_differs_from_the_ticket_in_one_thing(lottery: dict[str, Path], tmp_path: Path) -> None:
    found = {}
    for control in ("ticket", "random-weights", "random-mask"):
        train_round(job(tmp_path / control, {**IDLE, "control": control}, **lottery))
        found[control] = weights_in(tmp_path / control, lottery["rows"])
    ticket, drawn, masked = (found[name][1] for name in ("ticket", "random-weights", "random-mask"))
    early = [value for name, value in read_snapshot(lottery["dense"], "rewound").items()]
    assert len(early) == len(found["ticket"][0])
    for ours, others, other_mask in zip(ticket, drawn, masked, strict=True):
        assert torch.equal(ours != 0, others != 0) and not torch.equal(ours, others)
        assert int((other_mask != 0).sum()) == int((ours != 0).sum()) and not torch.equal(other_mask != 0, ours != 0)
        both = (ours != 0) & (other_mask != 0)
        assert torch.equal(ours[both], other_mask[both])
    rest = [name for name in found["ticket"][0] if ".encoder." not in name or not name.endswith("weight")]
    assert all(torch.equal(found["ticket"][0][name], found["random-weights"][0][name]) for name in rest)


def test_a_trained_ticket_keeps_its_zeros_and_a_later_round_never_revives_one(
    lottery: dict[str, Path], tmp_path: Path
) -> None:
    train_round(job(tmp_path / "first", {"left": 0.5}, **lottery))
    train_round(job(tmp_path / "second", {"left": 0.2}, **{**lottery, "before": tmp_path / "first"}))
    first, second = (weights_in(tmp_path / name, lottery["rows"])[1] for name in ("first", "second"))
    shares = [sum(int((one != 0).sum()) for one in each) / sum(one.numel() for one in each) for each in (first, second)]
    assert shares == pytest.approx([0.5, 0.2], abs=1e-3)
    assert all(bool(((later == 0) | (before != 0)).all()) for before, later in zip(first, second, strict=True))


def test_a_step_that_the_first_training_does_not_have_is_refused(lottery: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is of step 7, and the training has 6 steps"):
        train_round(job(tmp_path / "a", {"rewind_to": 7}, start=lottery["start"], rows=lottery["rows"]))
