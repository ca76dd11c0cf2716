"""Phases of a training: each trains its parameters and no others, and a resumed training is in the same one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tasks.errors import ModelError
from tasks.methods.losses.means import Loss, mean_of
from tasks.training.data.epochs import Indices
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.phases import Phase
from tests.training.loop.short_training import (
    CPU,
    EPOCH,
    KNOBS,
    assert_same,
    job,
    model,
    resumed,
    same_bytes,
    spec,
    trained,
)

PARTS = ("bert.encoder.layer.0.", "bert.encoder.layer.1.", "bert.embeddings.", "bert.encoder.layer.0.")
"""What learns, phase by phase; the first part learns again in the last one."""
LENGTHS = (EPOCH, 3, 2, KNOBS.steps - EPOCH - 5)


def start() -> Any:
    return model(layers=2, dropout=0.1)


def of(*parts: str) -> Callable[[str], bool]:
    """Return a function that tells whether a parameter belongs to some parts of the model."""
    return lambda name: name.startswith(parts)


def phases(total: int) -> list[Phase]:
    return [Phase(steps, of(part, "classifier.")) for steps, part in zip(LENGTHS, PARTS, strict=True)]


def phased(learned: Any, *, few: bool = True, **more: Any) -> TrainingSpec:
    return spec(learned, few=few, phases=phases, **more)


def test_a_phase_changes_its_parameters_and_no_others(tmp_path: Path) -> None:
    learned = start()
    before = [{name: value.clone() for name, value in learned.state_dict().items()}]

    def remember(step: int) -> None:
        before.append({name: value.clone() for name, value in learned.state_dict().items()})

    trained(tmp_path, learned, lambda one: replace(phased(one, few=False), after_step=[remember], score=None))
    ends = [sum(LENGTHS[: number + 1]) for number in range(len(LENGTHS))]
    for part, steps, end in zip(PARTS, LENGTHS, ends, strict=True):
        first, last = before[end - steps], before[end]
        changed = {name for name, value in last.items() if not torch.equal(value, first[name])}
        assert changed and all(name.startswith((part, "classifier.")) for name in changed)
        assert any(name.startswith(part) for name in changed)
    assert all(value.requires_grad for value in learned.parameters()), "afterwards, nothing is frozen"


def test_a_parameter_that_was_frozen_before_stays_frozen(tmp_path: Path) -> None:
    learned = start()
    learned.bert.embeddings.requires_grad_(False)
    trained(tmp_path, learned, lambda one: spec(one, few=True, phases=lambda total: [Phase(2), Phase(total - 2)]))
    table = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(learned.state_dict()[table], start().state_dict()[table])
    assert not learned.bert.embeddings.word_embeddings.weight.requires_grad


def test_phases_are_the_same_where_only_the_rows_in_use_are_trained(tmp_path: Path) -> None:
    """The table is frozen at first, while tokens come into use, and learns later."""
    whole, few = (
        trained(tmp_path / str(few), model(layers=2), lambda one, few=few: phased(one, few=few))
        for few in (False, True)
    )
    assert_same(whole, few)
    table = "bert.embeddings.word_embeddings.weight"
    assert not torch.equal(few.state_dict()[table], model(layers=2).state_dict()[table])


def test_phases_are_trainings_one_after_another(tmp_path: Path) -> None:
    """Each with moments and a schedule of its own: byte by byte the trainings of one phase each, where no parameter
    learns in two phases that follow each other."""
    apart = [Phase(EPOCH, of(part)) for part in ("bert.encoder", "bert.embeddings", "bert.encoder")]
    knobs = SimpleNamespace(**KNOBS.__dict__ | {"evaluations": 0})
    together, one_by_one = model(layers=2), model(layers=2)
    train(job(tmp_path / "together"), knobs, spec(together, few=False, phases=lambda total: apart), CPU)
    for number, phase in enumerate(apart):
        alone = SimpleNamespace(**knobs.__dict__ | {"steps": EPOCH})
        plan = spec(one_by_one, few=False)
        later = replace(plan, epoch=lambda epoch, number=number, plan=plan: plan.epoch(epoch + number))
        for name, value in one_by_one.named_parameters():
            value.requires_grad_(phase.learns(name))
        train(job(tmp_path / str(number)), alone, later, CPU)
    assert same_bytes(together, one_by_one) and not same_bytes(together, model(layers=2))


def test_parameters_that_go_on_learning_keep_their_moments(tmp_path: Path) -> None:
    flat = SimpleNamespace(**KNOBS.__dict__ | {"schedule": "constant", "warmup": 0})
    found = list[nn.Module]()
    for split in ((KNOBS.steps,), (5, KNOBS.steps - 5)):
        found.append(start())
        plan = spec(found[-1], few=True, phases=lambda total, split=split: [Phase(steps) for steps in split])
        train(job(tmp_path / str(len(split))), flat, plan, CPU)
    assert same_bytes(*found)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("stop", [1, 4, 5, 7, 8, 9, 11])
def test_every_phase_is_resumed_byte_by_byte(tmp_path: Path, stop: int, few: bool) -> None:
    """In the middle of each phase, and between two of them."""
    make = lambda one: phased(one, few=few)  # noqa: E731
    assert same_bytes(trained(tmp_path / "whole", start(), make), resumed(tmp_path, start, make, stop))


def raised(plain: Callable[[Indices], Loss], by: float) -> Callable[[Indices], Loss]:
    """Return a loss that is larger by a number."""
    return lambda indices: plain(indices) + mean_of(torch.tensor(by), 1)


def test_no_reported_loss_is_a_mean_over_two_phases(tmp_path: Path) -> None:
    told, learned = list[tuple[str, dict[str, Any]]](), start()
    here, plain = job(tmp_path), spec(learned, few=True)
    here.say = lambda event, **content: told.append((event, content))
    levels = (100.0, 200.0, 300.0)

    def split(total: int) -> Sequence[Phase]:
        return [Phase(total // 3, loss=raised(plain.loss, level)) for level in levels]

    train(here, KNOBS, replace(plain, phases=split), CPU)
    losses = [content for event, content in told if event == "curve" and "loss" in content["figures"]]
    assert [content["step"] for content in losses] == [4, 8, 12]
    assert [math.floor(content["figures"]["loss"] / 100) * 100 for content in losses] == list(levels)
    progress = [content for event, content in told if event == "progress"]
    assert {content["total"] for content in progress} == {12} and progress[-1]["done"] == 12


def test_the_loss_of_a_phase_is_that_of_the_training_unless_it_has_one(tmp_path: Path) -> None:
    learned, read = model(), list[str]()

    def named(name: str) -> Callable[[Indices], Loss]:
        def loss(indices: Indices) -> Loss:
            read.append(name)
            return plain.loss(indices)

        return loss

    plain = spec(learned, few=True)
    split = lambda total: [Phase(5), Phase(4, loss=named("own")), Phase(3)]  # noqa: E731
    train(job(tmp_path), KNOBS, replace(plain, loss=named("training's"), phases=split), CPU)
    assert read == ["training's"] * 5 + ["own"] * 4 + ["training's"] * 3


def test_each_phase_warms_up_and_ends_at_a_small_rate(tmp_path: Path) -> None:
    """By the first steps' sizes: AdamW moves every weight by the rate in the first step of its moments."""
    learned, moved = model(), list[float]()
    before: Tensor = learned.classifier.bias.detach().clone()

    def measure(step: int) -> None:
        moved.append(float((learned.classifier.bias - before).abs().max()))
        before.copy_(learned.classifier.bias)

    slow = SimpleNamespace(**KNOBS.__dict__ | {"warmup": 0.5})
    split = lambda total: [Phase(6, of("classifier")), Phase(6, of("bert", "classifier"))]  # noqa: E731
    train(job(tmp_path), slow, spec(learned, few=True, phases=split, after_step=[measure]), CPU)
    assert moved[0] == pytest.approx(KNOBS.learning_rate / 3, rel=1e-3) and max(moved) < 1.01 * KNOBS.learning_rate
    assert moved[5] < moved[2] / 2, "the first phase ends slowly"


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ([], "the phases have no steps, and the training 12"),
        ([Phase(5), Phase(6)], r"the phases have 5 \+ 6 steps, and the training 12; give each"),
        ([Phase(12), Phase(0)], r"the phases have 12 \+ 0 steps"),
        ([Phase(11), Phase(1, of("decoder."))], "phase 2 of 2 trains no parameter; name one that is not frozen"),
    ],
)
def test_phases_that_cannot_be_trained_are_refused_before_the_first_step(
    tmp_path: Path, split: list[Phase], message: str
) -> None:
    learned: nn.Module = model()
    with pytest.raises(ModelError, match=message):
        trained(tmp_path, learned, lambda one: spec(one, few=True, phases=lambda total: split))
    assert same_bytes(learned, model())
