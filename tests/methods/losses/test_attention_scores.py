"""Attention matching: by hand, blind to padded queries and keys, and strict about heads."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from tasks.errors import ModelError
from tasks.methods.losses.attention_scores import attention_score_loss, attention_score_loss_paper

MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


def scores(seed: int, heads: int = 2) -> torch.Tensor:
    return torch.randn(2, heads, 3, 3, generator=torch.Generator().manual_seed(seed))


def test_matches_the_definition_by_hand() -> None:
    student, teacher = torch.tensor([[[[1.0, 5.0], [5.0, 5.0]]]]), torch.zeros(1, 1, 2, 2)
    assert attention_score_loss(student, teacher, torch.tensor([[1, 0]])).mean().item() == 1.0
    assert attention_score_loss_paper(student, teacher).mean().item() == pytest.approx((1 + 75) / 4)


def test_a_perfect_student_has_no_loss() -> None:
    assert attention_score_loss(scores(0), scores(0), MASK).mean().item() == 0.0
    assert attention_score_loss_paper(scores(0), scores(0)).mean().item() == 0.0


def test_more_padding_does_not_change_the_loss() -> None:
    def wide(values: torch.Tensor, fill: float) -> torch.Tensor:
        return pad(values, (0, 4, 0, 4), value=fill)

    short = attention_score_loss(scores(0), scores(1), MASK).mean()
    long = attention_score_loss(wide(scores(0), 3.0), wide(scores(1), -1e4), pad(MASK, (0, 4))).mean()
    torch.testing.assert_close(short, long)


def test_masked_scores_of_minus_infinity_leave_loss_and_gradient_finite() -> None:
    student = scores(0).requires_grad_()
    hidden = MASK[:, None, None, :] == 0
    loss = attention_score_loss(
        student.masked_fill(hidden, -torch.inf), scores(1).masked_fill(hidden, -torch.inf), MASK
    ).mean()
    loss.backward()
    assert loss.isfinite() and student.grad.isfinite().all() and student.grad[1, :, 2].eq(0).all()


def test_the_order_of_batch_and_heads_does_not_matter() -> None:
    loss = attention_score_loss(scores(0), scores(1), MASK).mean()
    torch.testing.assert_close(loss, attention_score_loss(scores(0).flip(1), scores(1).flip(1), MASK).mean())
    torch.testing.assert_close(loss, attention_score_loss(scores(0).flip(0), scores(1).flip(0), MASK.flip(0)).mean())


def test_the_teacher_is_never_trained() -> None:
    student, teacher = scores(0).requires_grad_(), scores(1).requires_grad_()
    (
        attention_score_loss(student, teacher, MASK).mean() + attention_score_loss_paper(student, teacher).mean()
    ).backward()
    assert teacher.grad is None and student.grad is not None


def test_unequal_heads_are_refused_though_one_head_would_broadcast() -> None:
    with pytest.raises(ModelError, match="number of heads"):
        attention_score_loss(scores(0, heads=1), scores(1, heads=2), MASK)
    with pytest.raises(ModelError, match="number of heads"):
        attention_score_loss_paper(scores(0, heads=1), scores(1, heads=2))
    with pytest.raises(ModelError, match="mask"):
        attention_score_loss(scores(0), scores(1), MASK[:1])
