"""Hidden-state matching: by hand, padding-invariant, and strict about shapes."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from tasks.errors import ModelError, RecipeError
from tasks.methods.losses.hidden_states import Projections, hidden_state_loss, hidden_state_loss_paper

MASK = torch.tensor([[1, 1, 1], [1, 0, 0]])


def states(seed: int, width: int) -> torch.Tensor:
    return torch.randn(2, 3, width, generator=torch.Generator().manual_seed(seed))


def test_matches_the_definition_by_hand() -> None:
    student, teacher = torch.tensor([[[1.0, 2.0], [9.0, 9.0]]]), torch.tensor([[[3.0, 5.0], [0.0, 0.0]]])
    assert hidden_state_loss(student, teacher, torch.tensor([[1, 0]])).mean().item() == pytest.approx((4 + 9) / 2)
    assert hidden_state_loss_paper(student, teacher).mean().item() == pytest.approx((4 + 9 + 81 + 81) / 4)


def test_a_perfect_student_has_no_loss() -> None:
    assert hidden_state_loss(states(0, 4), states(0, 4), MASK).mean().item() == 0.0


def test_more_padding_does_not_change_the_loss() -> None:
    student, teacher, projection = states(0, 4), states(1, 6), Projections(1, 4, 6).of(0)
    short = hidden_state_loss(student, teacher, MASK, projection).mean()
    long = hidden_state_loss(
        pad(student, (0, 0, 0, 5), value=7.0), pad(teacher, (0, 0, 0, 5), value=-7.0), pad(MASK, (0, 5)), projection
    ).mean()
    torch.testing.assert_close(short, long)


def test_the_order_of_the_batch_does_not_matter() -> None:
    student, teacher = states(0, 4), states(1, 4)
    torch.testing.assert_close(
        hidden_state_loss(student, teacher, MASK).mean(),
        hidden_state_loss(student.flip(0), teacher.flip(0), MASK.flip(0)).mean(),
    )


def test_the_teacher_is_never_trained() -> None:
    student, teacher = states(0, 4).requires_grad_(), states(1, 4).requires_grad_()
    hidden_state_loss(student, teacher, MASK).mean().backward()
    assert teacher.grad is None and student.grad[1, 1:].eq(0).all() and student.grad[0].ne(0).any()


def test_a_batch_of_padding_alone_gives_zero() -> None:
    assert hidden_state_loss(states(0, 4), states(1, 4), MASK * 0).mean().item() == 0.0


def test_a_narrower_tensor_that_would_broadcast_is_refused() -> None:
    with pytest.raises(ModelError, match="projection"):
        hidden_state_loss(states(0, 1), states(1, 4), MASK)
    with pytest.raises(ModelError, match="mask"):
        hidden_state_loss(states(0, 4), states(1, 4), MASK[:1])


def test_shared_projections_are_one_and_the_others_one_each() -> None:
    shared, each = Projections(3, 4, 6), Projections(3, 4, 6, kind="per_layer")
    assert shared.of(0) is shared.of(2) and sum(p.numel() for p in shared.parameters()) == 4 * 6 + 6
    assert each.of(0) is not each.of(2) and sum(p.numel() for p in each.parameters()) == 3 * (4 * 6 + 6)
    assert torch.equal(Projections(2, 4, 4, kind="none").of(1)(states(0, 4)), states(0, 4))


def test_projections_refuse_what_cannot_work() -> None:
    with pytest.raises(ModelError, match="'shared' or 'per_layer'"):
        Projections(3, 4, 6, kind="none")
    with pytest.raises(RecipeError, match="per_layer"):
        Projections(3, 4, 6, kind="each")
    with pytest.raises(ModelError, match="0 to 2"):
        Projections(3, 4, 6).of(3)
