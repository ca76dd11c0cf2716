"""Hooks after each optimizer step: masked weights stay zero whatever moves them, in every kind of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tasks.training.loop import TrainingSpec
from tests.training.loop.short_training import (
    KNOBS,
    PAD,
    assert_same,
    model,
    resumed,
    same_bytes,
    spec,
    trained,
)


def matrices(learned: nn.Module) -> dict[str, nn.Parameter]:
    """Return the matrices of the layers by name."""
    return {name: value for name, value in learned.named_parameters() if ".layer." in name and value.ndim == 2}


def halves(learned: nn.Module) -> dict[str, torch.Tensor]:
    """Return a mask for each matrix, which leaves the larger half of its first weights."""
    return {name: value.abs() > value.abs().median() for name, value in matrices(model()).items()}


def masked(learned: Any, *, few: bool = True, **more: Any) -> TrainingSpec:
    """Return a training with fixed masks."""
    masks = halves(learned)

    def apply(step: int) -> None:
        for name, value in matrices(learned).items():
            value *= masks[name]

    return spec(learned, few=few, after_step=[apply], **more)


class Shrinking(nn.Module):
    """A model and its masks: after every third step, fewer weights are left."""

    def __init__(self) -> None:
        super().__init__()
        self.model = model(dropout=0.1)
        self.masks = nn.ParameterList(torch.ones_like(value) for value in matrices(self.model).values())
        self.masks.requires_grad_(False)

    def apply(self, step: int) -> None:  # type: ignore[override]
        """Compute the masks again when that is due, and apply them."""
        for mask, value in zip(self.masks, matrices(self.model).values(), strict=True):
            if step % 3 == 0:
                mask.copy_(value.abs() > value.abs().quantile(0.8 * step / KNOBS.steps))
            value *= mask


def shrinking(learned: Any) -> TrainingSpec:
    """Return a training whose masks change."""
    return replace(spec(learned.model, few=True), modules=learned, after_step=[learned.apply], score=None)


def zeros(learned: nn.Module) -> float:
    """Return the share of zeros in the matrices."""
    return float(torch.cat([value.flatten() == 0 for value in matrices(learned).values()]).float().mean())


def test_masked_weights_are_zero_when_they_are_scored_and_at_the_end(tmp_path: Path) -> None:
    learned, seen = model(), []
    wanted = masked(learned)

    def score() -> float:
        seen.append(zeros(learned))
        return float(len(seen))

    trained(tmp_path / "masked", learned, lambda _: replace(wanted, score=score))
    assert zeros(learned) == pytest.approx(0.5, abs=0.01) and seen == [zeros(learned)] * KNOBS.evaluations
    free = trained(tmp_path / "free", model(), lambda one: spec(one, few=True))
    assert zeros(free) == 0, "without the hook, nothing is zero"
    first = matrices(model())
    assert all(not torch.equal(value, first[name] * (value != 0)) for name, value in matrices(learned).items())


def test_hooks_are_called_in_order_after_each_step_without_gradients(tmp_path: Path) -> None:
    learned, calls = model(), list[tuple[str, int, bool, bool]]()

    def listening(name: str) -> Callable[[int], None]:
        before = learned.classifier.weight.detach().clone()

        def hook(step: int) -> None:
            moved = not torch.equal(before, learned.classifier.weight)
            before.copy_(learned.classifier.weight)
            calls.append((name, step, moved, torch.is_grad_enabled()))

        return hook

    hooks = [listening("one"), listening("two")]
    trained(tmp_path, learned, lambda one: spec(one, few=True, after_step=hooks))
    steps = range(1, KNOBS.steps + 1)
    assert calls == [(name, step, True, False) for step in steps for name in ("one", "two")]


def test_masks_are_the_same_where_only_the_rows_in_use_are_trained(tmp_path: Path) -> None:
    whole, few = (
        trained(tmp_path / str(few), model(), lambda one, few=few: masked(one, few=few)) for few in (False, True)
    )
    assert_same(whole, few)
    assert zeros(whole) == zeros(few) > 0.4


def test_a_hook_may_change_an_embedding_that_is_trained_as_a_whole(tmp_path: Path) -> None:
    learned = model()
    learned.bert.embeddings.word_embeddings.padding_idx = None  # its row has a gradient

    def without_padding(step: int) -> None:
        learned.get_input_embeddings().weight[PAD] = 0

    trained(tmp_path, learned, lambda one: spec(one, few=False, after_step=[without_padding]))
    table_VD = learned.get_input_embeddings().weight
    assert not table_VD[PAD].any() and table_VD[PAD + 1].all()


@pytest.mark.parametrize("stop", [1, 3, 7, 11])
def test_masks_that_change_are_resumed_byte_by_byte(tmp_path: Path, stop: int) -> None:
    whole = trained(tmp_path / "whole", Shrinking(), shrinking)
    again = resumed(tmp_path, Shrinking, shrinking, stop)
    assert same_bytes(whole, again) and zeros(whole) == pytest.approx(0.8, abs=0.02)
