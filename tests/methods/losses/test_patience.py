"""Patience on the summary token: the reference's numbers, and the layers that are compared."""

from __future__ import annotations

import pytest
import torch

from tasks.errors import ModelError, RecipeError
from tasks.methods.losses.patience import patience_layers, patience_loss
from tests.methods.oracles import EXACT, Oracle, reads


@reads("pkd", "patience_normalised", "patience_unnormalised")
def test_equals_the_reference(oracle: Oracle) -> None:
    t = oracle.tensors
    student = t["in.student_cls"].requires_grad_()
    # Hidden state m is the output of layer m - 1: the reference counts layers from 0.
    copied = [state - 1 for state in patience_layers("skip", 3, 6)]
    assert copied == oracle.knobs.teacher_layers_0based
    loss = patience_loss(
        student[:, : len(copied)], t["in.teacher_cls"][:, copied], normalise=oracle.knobs.normalised
    ).mean()
    loss.backward()
    assert loss.item() == pytest.approx(oracle.loss, rel=1e-9)
    torch.testing.assert_close(student.grad, t[f"grad.{oracle.name}.student_cls"], **EXACT)


def test_the_layers_of_the_paper() -> None:
    assert patience_layers("skip", 6, 12) == [2, 4, 6, 8, 10]
    assert patience_layers("last", 6, 12) == [7, 8, 9, 10, 11]
    assert patience_layers("skip", 6, 24) == [4, 8, 12, 16, 20]


def test_a_student_equal_to_its_teacher_loses_nothing() -> None:
    states = torch.randn(2, 3, 8)
    assert (
        float(patience_loss(states, states, normalise=True).mean())
        == 0
        == float(patience_loss(states, states, normalise=False).mean())
    )


def test_length_counts_only_where_nothing_is_normalised() -> None:
    states = torch.randn(2, 3, 8, dtype=torch.float64)
    assert float(patience_loss(3 * states, states, normalise=True).mean()) == pytest.approx(0, abs=1e-15)
    assert float(patience_loss(3 * states, states, normalise=False).mean()) == pytest.approx(
        float((2 * states).square().mean())
    )


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ModelError, match="remove patience"):
        patience_loss(torch.zeros(2, 3, 8), torch.zeros(2, 3, 12), normalise=True)
    with pytest.raises(ModelError, match="give it 2 to 6 layers"):
        patience_layers("skip", 1, 6)
    with pytest.raises(RecipeError, match="choose one of skip, last"):
        patience_layers("top", 3, 6)
