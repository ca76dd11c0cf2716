"""Steps that a GPU repeats: what is repeated, what is refused, and that a training is the same with and without."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tasks.methods.losses.means import Loss, mean_of
from tasks.training.data.encoded import Encoded, collate
from tasks.training.data.epochs import Indices, planned
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.attention import own_attention
from tasks.training.steps.batch_loss import BatchInputs, BatchLoss
from tasks.training.steps.captured_steps import MOST, CapturedSteps, make_capturable, set_rate
from tests.training.loop.short_training import KNOBS, Halted, job, model, same_bytes

CPU = torch.device("cpu")
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
ROWS = 64
LONG = SimpleNamespace(**KNOBS.__dict__ | {"steps": 40, "batch_size": 8, "batch_tokens": 10_000, "evaluations": 0})


def text() -> Encoded:
    """Rows of 3 to 8 tokens."""
    random = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(random.integers(3, 9, ROWS))])
    ids_S = random.integers(1, 50, offsets[-1])
    return Encoded(ids_S, np.zeros_like(ids_S), offsets)


def inputs(rows: Any, place: torch.device = CPU, encoded: Encoded | None = None) -> BatchInputs:
    """What is read for a batch of rows."""
    return BatchInputs(collate(encoded or text(), rows, 0, place), {"targets": torch.as_tensor(rows, device=place) % 2})


class Repeated:
    """Stands for a graph: repeats a step on the inputs it was recorded on."""

    def __init__(self) -> None:
        self.recorded, self.released, self.error = 0, 0, ""

    def release(self) -> None:
        self.released += 1

    def __call__(self, step: Callable[[BatchInputs], Tensor], held: BatchInputs) -> tuple[Callable[[], None], Tensor]:
        if self.error:
            raise RuntimeError(self.error)
        self.recorded += 1
        loss = torch.zeros(())
        return lambda: loss.copy_(step(held)) and None, loss


def of_tokens(given: BatchInputs) -> Tensor:
    """A step whose loss depends on every part of a batch."""
    batch = given.batch
    return (batch.ids_BT * batch.mask_BT).sum().float() + 1000 * given.beside["targets"].sum()


def test_a_size_is_captured_when_it_comes_again_and_repeated_on_other_rows() -> None:
    graphs = Repeated()
    steps = CapturedSteps(of_tokens, lambda words: None, graphs)
    for rows in np.arange(ROWS).reshape(-1, 8):
        given = inputs(rows)
        assert steps.take(given, phase=0) == of_tokens(given)
    sizes = {inputs(rows).sizes() for rows in np.arange(ROWS).reshape(-1, 8)}
    assert graphs.recorded == len(steps.captured) >= 1 and len(steps.seen) == len(sizes)
    before = graphs.recorded
    for _ in range(2):
        steps.take(inputs(np.arange(8)), phase=1)  # other parameters learn: the same sizes, another step
    assert graphs.recorded == before + 1


def test_losses_of_earlier_steps_stay_as_they_were() -> None:
    steps = CapturedSteps(of_tokens, lambda words: None, Repeated())
    batches = [inputs(np.full(8, row)) for row in (1, 1, 1, 2, 3)]
    batches = [given for given in batches if given.sizes() == batches[0].sizes()]
    losses = [steps.take(given, phase=0) for given in batches]
    assert losses == [of_tokens(given) for given in batches] and len(batches) > 2


def test_not_more_sizes_are_captured_than_memory_may_hold() -> None:
    graphs = Repeated()
    steps = CapturedSteps(of_tokens, lambda words: None, graphs)
    for count in range(1, MOST + 6):
        for _ in range(3):
            steps.take(inputs(np.zeros(count, int)), phase=0)
    assert graphs.recorded == MOST


def test_captured_steps_give_their_memory_back_to_one_that_needs_it() -> None:
    told, graphs, sizes = list[str](), Repeated(), list[int]()

    def step(given: BatchInputs) -> Tensor:
        sizes.append(len(given.batch.ids_BT))
        if sizes[-1] == 16 and not graphs.released:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return of_tokens(given)

    steps = CapturedSteps(step, told.append, graphs)
    for count in (8, 8, 16, 8, 16):
        given = inputs(np.arange(count))
        assert steps.take(given, phase=0) == of_tokens(given)
    assert graphs.released == 1 and not steps.captured and len(told) == 1 and "more memory" in told[0]
    assert sizes == [8, 8, 16, 16, 8, 16], "the step that found too little memory is taken once more"

    full = CapturedSteps(step, told.append, graphs := Repeated())
    with pytest.raises(torch.OutOfMemoryError):
        full.take(inputs(np.arange(16)), phase=0)


def test_a_step_that_cannot_be_captured_is_taken_all_the_same_and_told_once() -> None:
    told, graphs = list[str](), Repeated()
    graphs.error = "operation not permitted when stream is capturing\nmore of it"
    steps = CapturedSteps(of_tokens, told.append, graphs)
    for _ in range(4):
        assert steps.take(inputs(np.arange(8)), phase=0) == of_tokens(inputs(np.arange(8)))
    assert told == [
        "the steps of this training cannot be captured, so a GPU waits for each of their operations: "
        "operation not permitted when stream is capturing"
    ]


@pytest.mark.parametrize("draw", [lambda: float(torch.rand(())), random.random], ids=["torch", "Python"])
def test_a_step_that_draws_numbers_on_the_host_is_not_repeated(draw: Callable[[], float]) -> None:
    told, drawn = list[str](), list[float]()

    def step(given: BatchInputs) -> Tensor:
        drawn.append(draw())
        return of_tokens(given)

    class Drawing(Repeated):
        def __call__(
            self, step: Callable[[BatchInputs], Tensor], held: BatchInputs
        ) -> tuple[Callable[[], None], Tensor]:
            return lambda: None, step(held)

    torch.manual_seed(0), random.seed(0)
    expected = [draw() for _ in range(4)]
    torch.manual_seed(0), random.seed(0)
    steps = CapturedSteps(step, told.append, Drawing())
    for _ in range(4):
        steps.take(inputs(np.arange(8)), phase=0)
    assert len(told) == 1 and told[0].endswith("they draw random numbers on the host")
    assert drawn[:1] + drawn[2:] == expected, "the draw of the attempt is taken back"


def test_the_rate_is_set_in_place_where_a_captured_step_reads_it() -> None:
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(2))], lr=0.5)
    set_rate(optimizer.param_groups[0], 0.25)
    assert optimizer.param_groups[0]["lr"] == 0.25
    make_capturable(optimizer, CPU)
    place = optimizer.param_groups[0]["lr"]
    set_rate(optimizer.param_groups[0], 0.125)
    assert optimizer.param_groups[0]["lr"] is place and place == 0.125


def training(place: torch.device, *, repeats: bool, read_value: bool = False) -> tuple[Any, TrainingSpec]:
    """A model with dropout, and the training of it with labels."""
    encoded, learned = text(), own_attention(model(dropout=0.1).to(place))

    def loss(given: BatchInputs) -> Loss:
        logits = learned(**given.batch.inputs(learned)).logits
        found = nn.functional.cross_entropy(logits.float(), given.beside["targets"], reduction="sum")
        return mean_of(found, int(given.beside["targets"].sum() > -1) * 8 if read_value else 8)

    def read(indices: Indices) -> BatchInputs:
        return inputs(indices.rows_B, place, encoded)

    return learned, TrainingSpec(
        learned, lambda number: planned(number, encoded, LONG), BatchLoss(read, loss), repeats=repeats
    )


def trained_on_gpu(folder: Path, *, repeats: bool, read_value: bool = False) -> Any:
    """Train on a GPU to the end, and return the model."""
    learned, spec = training(torch.device("cuda"), repeats=repeats, read_value=read_value)
    train(job(folder), LONG, spec, torch.device("cuda"))
    return learned


@GPU
def test_repeated_steps_give_the_weights_of_single_operations(tmp_path: Path) -> None:
    single, repeated = (trained_on_gpu(tmp_path / name, repeats=name == "repeated") for name in ("single", "repeated"))
    for (name, value), (_, other) in zip(single.state_dict().items(), repeated.state_dict().items(), strict=True):
        if not name.endswith("key.bias"):  # moves no score: its gradient is rounding, which Adam makes large
            torch.testing.assert_close(value, other, rtol=0, atol=1e-5, msg=name)


@GPU
def test_two_trainings_with_repeated_steps_are_equal_to_the_byte(tmp_path: Path) -> None:
    assert same_bytes(*(trained_on_gpu(tmp_path / name, repeats=True) for name in ("one", "other")))


@GPU
def test_a_training_that_goes_on_after_a_stop_is_equal_to_the_byte(tmp_path: Path) -> None:
    place, often = torch.device("cuda"), SimpleNamespace(**LONG.__dict__ | {"checkpoint_minutes": 0})

    def breaks(step: int, total: int) -> None:
        if step == 21:
            raise Halted

    _, halted = training(place, repeats=True)
    with pytest.raises(Halted):
        train(job(tmp_path / "broken"), often, replace(halted, begin=breaks), place)
    learned, again = training(place, repeats=True)
    train(job(tmp_path / "broken"), LONG, again, place)
    assert same_bytes(learned, trained_on_gpu(tmp_path / "whole", repeats=True))


@GPU
def test_a_loss_that_waits_for_the_gpu_is_not_captured(tmp_path: Path) -> None:
    single = trained_on_gpu(tmp_path / "single", repeats=False, read_value=True)
    refused = trained_on_gpu(tmp_path / "refused", repeats=True, read_value=True)
    assert same_bytes(single, refused)
