"""Relations of queries, keys and values: by hand, by the reference, and by the harm that a wrong reshape or a padded
key does."""

from __future__ import annotations

import pytest
import torch

from tasks.errors import ModelError
from tasks.methods.losses.attention_distributions import log_shares
from tasks.methods.losses.relations import relation_heads, relation_loss, relation_scores
from tests.methods.oracles import EXACT, Oracle, reads


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@reads("relation_kl", "state_relation_kl_without_padding", "state_relation_kl")
def test_equals_the_reference(oracle: Oracle) -> None:
    """Its first row is full; the reference has no mask, so over all rows nothing may be masked here either."""
    rows, t = slice(0, 1 if "without_padding" in oracle.name else None), oracle.tensors
    # Stored with the tokens first, [T, B, width], in one piece; one attention head of the whole width is the same
    # thing.
    student = t["in.student_states"].requires_grad_()
    ours, theirs = (states.transpose(0, 1)[rows, None] for states in (student, t["in.teacher_states"]))
    loss = relation_loss(ours, theirs, torch.ones(len(ours), 7), heads=4).mean()
    loss.backward()
    assert loss.item() == pytest.approx(oracle.loss, rel=1e-9)
    torch.testing.assert_close(student.grad, t[f"grad.{oracle.name}.student_states"], **EXACT)


def test_equals_the_definition_written_out() -> None:
    student, teacher = drawn(1, 2, 3, 4), drawn(1, 4, 3, 3, seed=1)  # widths 8 and 12, relation heads 4 of size 2 and 3
    total = 0.0
    for head in range(4):
        parts = []
        for states in (student, teacher):
            joined = torch.cat(list(states[0]), dim=-1)  # heads side by side: [T, D]
            size = joined.shape[1] // 4
            part = joined[:, head * size : (head + 1) * size]
            parts.append(torch.softmax(part @ part.T / size**0.5, -1))
        total += float((parts[1] * (parts[1] / parts[0]).log()).sum())
    loss = relation_loss(student, teacher, torch.ones(1, 3), heads=4).mean()
    assert float(loss) == pytest.approx(total / (4 * 3), rel=1e-9)


def test_padding_changes_nothing() -> None:
    student, teacher, mask = (
        drawn(2, 2, 5, 4),
        drawn(2, 4, 5, 3, seed=1),
        torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]),
    )
    loss = relation_loss(student, teacher, mask, heads=2).mean()
    wider = [torch.nn.functional.pad(states, (0, 0, 0, 3), value=7.0) for states in (student, teacher)]
    padded = relation_loss(*wider, torch.nn.functional.pad(mask, (0, 3)), heads=2).mean()
    torch.testing.assert_close(loss, padded, **EXACT)


def test_padding_leaves_no_gradient_that_is_not_a_number() -> None:
    student = drawn(2, 2, 5, 4).requires_grad_()
    relation_loss(
        student, drawn(2, 2, 5, 4, seed=1), torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]), heads=4
    ).mean().backward()
    assert student.grad is not None and student.grad.isfinite().all() and not student.grad[0, :, 2:].any()


def test_a_student_equal_to_its_teacher_loses_nothing_whatever_the_heads() -> None:
    states = drawn(2, 4, 5, 6)
    for heads in (1, 2, 4, 8, 24):
        assert float(relation_loss(states, states, torch.ones(2, 5), heads=heads).mean()) == pytest.approx(0, abs=1e-12)


def test_heads_are_split_along_the_width_not_along_the_text() -> None:
    """Users who reshape across the tokens see a loss that falls at once and teaches nothing."""
    states = torch.zeros(1, 1, 3, 4, dtype=torch.float64)
    states[0, 0, 1, 0] = 5.0  # only the second token, only in the first relation head
    first, second = log_shares(relation_scores(states, 2), torch.ones(1, 3, dtype=torch.bool))[0].exp()
    assert torch.allclose(second, torch.full((3, 3), 1 / 3, dtype=torch.float64)), "the other head sees nothing"
    assert first[1, 1] > 0.99 and torch.allclose(first[0], torch.full((3,), 1 / 3, dtype=torch.float64))


def test_the_teacher_is_never_trained() -> None:
    teacher = drawn(1, 2, 3, 4).requires_grad_()
    relation_loss(drawn(1, 2, 3, 4, seed=1).requires_grad_(), teacher, torch.ones(1, 3), heads=2).mean().backward()
    assert teacher.grad is None


@pytest.mark.parametrize(
    ("widths", "heads"), [((384, 768), 48), ((312, 384), 24), ((312, 768), 24), ((16, 16), 16), ((7, 5), 1)]
)
def test_as_many_heads_as_divide_both_widths(widths: tuple[int, int], heads: int) -> None:
    assert relation_heads(*widths) == heads


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ModelError, match="5 relation heads do not divide the width 8"):
        relation_loss(drawn(1, 2, 3, 4), drawn(1, 2, 3, 4), torch.ones(1, 3), heads=5)
