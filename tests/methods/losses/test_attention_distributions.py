"""Attention distributions: the reference's number, padding, and a teacher that is never trained."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tasks.errors import ModelError
from tasks.methods.losses.attention_distributions import attention_distribution_loss
from tasks.task_types.heads import HEADS
from tests.methods.oracles import EXACT, Oracle, reads


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@reads("relation_kl", "attention_kl_without_padding", "attention_kl")
def test_equals_the_reference(oracle: Oracle) -> None:
    """Its first row is full; of all rows the reference sets masked scores to 0 and masks nothing."""
    rows, t = slice(0, 1 if "without_padding" in oracle.name else None), oracle.tensors
    student = t["in.student_scores"].requires_grad_()
    ours, theirs = (scores[rows].masked_fill(scores[rows] <= -100, 0.0) for scores in (student, t["in.teacher_scores"]))
    loss = attention_distribution_loss(ours, theirs, torch.ones(len(ours), 7)).mean()
    loss.backward()
    assert loss.item() == pytest.approx(oracle.loss, rel=1e-9)
    torch.testing.assert_close(student.grad, t[f"grad.{oracle.name}.student_scores"], **EXACT)


def test_padding_changes_nothing() -> None:
    student, teacher, mask = drawn(2, 3, 4, 4), drawn(2, 3, 4, 4, seed=1), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    wider = [torch.nn.functional.pad(scores, (0, 2, 0, 2), value=9.0) for scores in (student, teacher)]
    loss = attention_distribution_loss(student, teacher, mask).mean()
    torch.testing.assert_close(
        attention_distribution_loss(*wider, torch.nn.functional.pad(mask, (0, 2))).mean(), loss, **EXACT
    )


def test_a_shift_of_all_scores_of_a_query_changes_nothing() -> None:
    student, teacher = drawn(1, 2, 3, 3), drawn(1, 2, 3, 3, seed=1)
    shifted = attention_distribution_loss(student + drawn(1, 2, 3, 1, seed=2), teacher, torch.ones(1, 3)).mean()
    torch.testing.assert_close(shifted, attention_distribution_loss(student, teacher, torch.ones(1, 3)).mean(), **EXACT)


def test_the_teacher_is_never_trained() -> None:
    teacher = drawn(1, 2, 3, 3).requires_grad_()
    attention_distribution_loss(drawn(1, 2, 3, 3, seed=1).requires_grad_(), teacher, torch.ones(1, 3)).mean().backward()
    assert teacher.grad is None


def test_other_heads_are_refused() -> None:
    with pytest.raises(ModelError, match="use method: relations"):
        attention_distribution_loss(drawn(1, 2, 3, 3), drawn(1, 4, 3, 3), torch.ones(1, 3))


def test_a_student_equal_to_its_teacher_loses_nothing_in_the_engine(tiny_bert: Path) -> None:
    from tasks.training.data.encoded import collate, encode
    from tasks.training.data.rows import Task, load_tokenizer
    from tasks.training.models.students import freeze, load_classifier
    from tasks.training.objectives.self_attention import SelfAttention

    teacher = freeze(
        load_classifier(
            tiny_bert,
            Task("tiny", "classification", ["no", "yes"], "accuracy", False, HEADS["classification"]),
            torch.device("cpu"),
        )
    )
    batch = collate(
        encode(load_tokenizer(tiny_bert), ["the film was good", "a book"], None, 16), [0, 1], 0, torch.device("cpu")
    )
    objective = SelfAttention(copy.deepcopy(teacher), teacher, SimpleNamespace(attention=1.0, value=1.0))
    assert float(objective.loss(batch).mean()) == pytest.approx(0, abs=1e-7)
