"""Feature maps: the reference's numbers and turns, padding, and a teacher that is never trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tasks.errors import ModelError
from tasks.methods.losses.attention_distributions import attention_distribution_loss
from tasks.methods.losses.feature_maps import (
    feature_map_loss,
    steps_of_layers,
    token_mean_loss,
    token_variance_loss,
)
from tests.methods.oracles import EXACT, Oracle, reads

LOSSES: dict[str, Callable[..., Any]] = {
    "feature_map": feature_map_loss,
    "mean": token_mean_loss,
    "variance": token_variance_loss,
}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@reads("mobilebert", "one_teacher_layer_step5", "one_teacher_layer_step15", "one_teacher_layer_step30")
def test_equals_the_reference(oracle: Oracle) -> None:
    """It counts padding, divides by all layers though one is active, and has the cross entropy of attention, which is
    our divergence and the teacher's own entropy."""
    t, knobs = oracle.tensors, oracle.knobs
    factors = {"feature_map": knobs.hidden_factor, "mean": knobs.mean_factor, "variance": knobs.variance_factor}
    layer, share = knobs.active_layer, 1 / knobs.layers
    states, scores = t["in.student_hidden"].requires_grad_(), t["in.student_scores"].requires_grad_()
    theirs, every = t["in.teacher_scores"][layer], torch.ones(3, 7)
    pair = states[layer + 1], t["in.teacher_hidden"][layer + 1]
    found = {name: share * factors[name] * loss(*pair, every).mean() for name, loss in LOSSES.items()}
    entropy = -(theirs.softmax(-1) * theirs.log_softmax(-1)).sum(-1).mean()
    divergence = attention_distribution_loss(scores[layer], theirs, every).mean()
    found["attention"] = share * knobs.attention_factor * (divergence + entropy)
    total = torch.stack(list(found.values())).sum()
    total.backward()
    assert float(total.detach()) == pytest.approx(oracle.loss, rel=1e-9)
    for name, value in found.items():
        assert float(value.detach()) == pytest.approx(oracle.scalars[name], rel=1e-9), name
    torch.testing.assert_close(states.grad, t[f"grad.{oracle.name}.student_hidden"], **EXACT)
    torch.testing.assert_close(scores.grad, t[f"grad.{oracle.name}.student_scores"], **EXACT)


@pytest.mark.parametrize("name", LOSSES)
def test_padding_changes_nothing_and_an_equal_student_loses_nothing(name: str) -> None:
    student, teacher, mask = drawn(2, 4, 6), drawn(2, 4, 6, seed=1), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    loss = LOSSES[name](student, teacher, mask).mean()
    wider = [torch.nn.functional.pad(states, (0, 0, 0, 2), value=9.0) for states in (student, teacher)]
    torch.testing.assert_close(LOSSES[name](*wider, torch.nn.functional.pad(mask, (0, 2))).mean(), loss, **EXACT)
    assert float(LOSSES[name](teacher, teacher, mask).mean()) == 0 < float(loss)


def test_the_teacher_is_never_trained_and_other_widths_are_refused() -> None:
    student, teacher = drawn(1, 3, 4).requires_grad_(), drawn(1, 3, 4, seed=1).requires_grad_()
    for loss in LOSSES.values():
        loss(student, teacher, torch.ones(1, 3)).mean().backward()
    assert teacher.grad is None and student.grad is not None
    with pytest.raises(ModelError, match="give the student the teacher's width, as start: mobilebert does"):
        feature_map_loss(drawn(1, 3, 4), drawn(1, 3, 6), torch.ones(1, 3))


def test_layers_take_turns_of_like_length() -> None:
    assert steps_of_layers(30, 3) == [10, 10, 10] and sum(steps_of_layers(100, 7)) == 100
    with pytest.raises(ModelError, match="2 steps are too few for 3 layers that take turns"):
        steps_of_layers(2, 3)
