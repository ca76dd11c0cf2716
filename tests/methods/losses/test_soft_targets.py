"""Soft targets: the numbers by hand, by property, by the harm prevented, and by the reference code."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tasks.errors import DataError, ModelError, RecipeError
from tasks.methods.losses.soft_targets import (
    class_loss,
    class_prediction_loss,
    soft_cross_entropy_paper,
    soft_target_loss,
    value_loss,
    value_prediction_loss,
)
from tests.methods.oracles import EXACT, Oracle, reads

KNOBS = {"temperature": 2.0, "hard_weight": 0.25}


def logits(*shape: int, seed: int = 0, scale: float = 3.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


def test_matches_the_definition_by_hand() -> None:
    # Teacher (ln 3, 0) at T=1 is (3/4, 1/4); the student is (1/2, 1/2).
    teacher, student = torch.tensor([[math.log(3.0), 0.0]]), torch.zeros(1, 2)
    expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert soft_target_loss(student, teacher, temperature=1.0).mean().item() == pytest.approx(expected, rel=1e-6)


def test_a_perfect_student_has_no_loss() -> None:
    teacher = logits(4, 3)
    assert soft_target_loss(teacher, teacher, temperature=4.0).mean().item() == pytest.approx(0.0, abs=1e-12)


def test_the_paper_form_at_equality_is_the_teachers_entropy_per_class() -> None:
    teacher = logits(4, 3)
    entropy = torch.distributions.Categorical(logits=teacher / 2.0).entropy().mean()
    torch.testing.assert_close(soft_cross_entropy_paper(teacher, teacher, temperature=2.0).mean(), entropy / 3)


def test_gradient_size_hardly_depends_on_temperature() -> None:
    def size(temperature: float) -> float:
        student = logits(8, 3, seed=1).requires_grad_()
        soft_target_loss(student, logits(8, 3, seed=2), temperature=temperature).mean().backward()
        return student.grad.norm().item()

    assert size(200.0) == pytest.approx(size(100.0), rel=0.02)


def test_the_teacher_is_never_trained() -> None:
    teacher, student = logits(2, 3).requires_grad_(), logits(2, 3, seed=1).requires_grad_()
    class_prediction_loss(student, teacher, torch.tensor([0, 1]), **KNOBS).mean().backward()
    assert teacher.grad is None and student.grad is not None


def test_the_order_of_the_batch_does_not_matter() -> None:
    student, teacher, labels = logits(6, 3), logits(6, 3, seed=1), torch.tensor([0, 1, 2, -1, 0, 1])
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    shuffled = class_prediction_loss(student[order], teacher[order], labels[order], **KNOBS).mean()
    torch.testing.assert_close(class_prediction_loss(student, teacher, labels, **KNOBS).mean(), shuffled)


def test_half_precision_is_computed_in_single() -> None:
    loss = soft_target_loss(logits(2, 3).bfloat16(), logits(2, 3, seed=1).bfloat16(), temperature=2.0).mean()
    assert loss.dtype == torch.float32


def test_labels_and_teacher_mix_by_the_hard_weight() -> None:
    student, teacher, labels = logits(4, 3), logits(4, 3, seed=1), torch.tensor([0, 1, 2, 0])
    soft = soft_target_loss(student, teacher, temperature=2.0).mean()
    hard = torch.nn.functional.cross_entropy(student, labels)
    torch.testing.assert_close(
        class_prediction_loss(student, teacher, labels, **KNOBS).mean(), 0.75 * soft + 0.25 * hard
    )


def test_unlabelled_rows_do_not_dilute_the_label_loss() -> None:
    student = logits(3, 3)
    torch.testing.assert_close(
        class_loss(student, torch.tensor([2, -1, -100])).mean(),
        class_loss(student[:1], torch.tensor([2])).mean(),
    )
    values = torch.tensor([1.0, float("nan"), float("nan")], dtype=torch.float64)
    torch.testing.assert_close(value_loss(student[:, :1], values).mean(), (student[0, 0] - 1.0).square())


@pytest.mark.parametrize(("label_loss", "classes", "label"), [(class_loss, 3, -1), (value_loss, 1, float("nan"))])
def test_a_batch_without_labels_gives_zero_and_a_finite_gradient(label_loss: Any, classes: int, label: float) -> None:
    student = logits(2, classes).requires_grad_()
    loss = label_loss(student, torch.tensor([label, label])).mean()
    loss.backward()
    assert loss.item() == 0.0
    assert student.grad.eq(0).all()


def test_regression_mixes_teacher_and_labels() -> None:
    student, teacher = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [2.0]])
    labels = torch.tensor([float("nan"), 5.0])
    loss = value_prediction_loss(student, teacher, labels, hard_weight=0.5).mean()
    assert loss.item() == pytest.approx(0.5 * 2.0 + 0.5 * 9.0)


def test_a_label_tensor_that_would_broadcast_is_refused() -> None:
    with pytest.raises(DataError, match="one label per row"):
        value_loss(logits(4, 1), torch.zeros(4, 1))
    with pytest.raises(DataError, match="one label per row"):
        value_loss(logits(4, 1), torch.zeros(1))


def test_a_narrower_teacher_that_would_broadcast_is_refused() -> None:
    with pytest.raises(ModelError, match="same classes"):
        soft_target_loss(logits(4, 3), logits(4, 1), temperature=1.0)
    with pytest.raises(ModelError, match="same classes"):
        value_prediction_loss(logits(4, 1), logits(1, 1), torch.zeros(4), hard_weight=0.0)


def test_a_regression_model_of_several_outputs_is_refused() -> None:
    with pytest.raises(ModelError, match="one value per row"):
        value_loss(logits(4, 2), torch.zeros(4))


@pytest.mark.parametrize(
    "wrong",
    [{"formula": "draft"}, {"hard_weight": 1.5}, {"temperature": 0.0}, {"temperature": -1.0}],
)
def test_an_illegal_knob_is_refused_with_a_sentence(wrong: dict) -> None:
    with pytest.raises(RecipeError, match=r"choose one of|must"):
        class_prediction_loss(logits(2, 3), logits(2, 3), torch.tensor([0, 1]), **{**KNOBS, **wrong})


@reads("pkd", *(f"soft_target_batchmean_T{temperature}" for temperature in (1, 2, 4, 10)))
def test_equals_the_reference_soft_targets(oracle: Oracle) -> None:
    tensors, knobs, expected = oracle.tensors, oracle.knobs, oracle.scalars
    student, teacher = tensors["in.student_logits"].requires_grad_(), tensors["in.teacher_logits"]
    kd = soft_target_loss(student, teacher, temperature=knobs.temperature).mean()
    loss = class_prediction_loss(
        student,
        teacher,
        tensors["in.labels"],
        temperature=knobs.temperature,
        hard_weight=1 - knobs.alpha,
    ).mean()
    loss.backward()
    assert kd.item() == pytest.approx(expected["kd"], rel=1e-9)
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-9)
    torch.testing.assert_close(student.grad, tensors[f"grad.{oracle.name}.student_logits"], **EXACT)


@reads("pkd", *(f"soft_target_mean_T{temperature}" for temperature in (1, 5, 10)))
def test_the_reference_divides_its_soft_targets_by_the_classes_too(oracle: Oracle) -> None:
    """Its own default, which no recipe here has: the same parts, the soft one divided by 3 classes."""
    tensors, knobs, expected = oracle.tensors, oracle.knobs, oracle.scalars
    student, teacher = tensors["in.student_logits"].requires_grad_(), tensors["in.teacher_logits"]
    kd = soft_target_loss(student, teacher, temperature=knobs.temperature).mean() / student.shape[1]
    hard = class_loss(student, tensors["in.labels"]).mean()
    loss = knobs.alpha * kd + (1 - knobs.alpha) * hard
    loss.backward()
    found = {"loss": loss.item(), "kd": kd.item(), "hard": hard.item()}
    assert found == pytest.approx(expected, rel=1e-9)
    torch.testing.assert_close(student.grad, tensors[f"grad.{oracle.name}.student_logits"], **EXACT)


@reads("distilbert", "squad_second_step")
def test_equals_the_reference_where_the_classes_are_places_of_a_text(oracle: Oracle) -> None:
    """The first and the last token of an answer; questions are no task here yet, this would be their loss."""
    tensors, knobs, expected = oracle.tensors, oracle.knobs, oracle.scalars
    ends = {end: tensors[f"in.student_{end}"].requires_grad_() for end in ("start", "end")}
    theirs = {end: tensors[f"in.teacher_{end}"] for end in ends}
    parts = {end: soft_target_loss(ends[end], theirs[end], temperature=knobs.temperature).mean() for end in ends}
    kd = (parts["start"] + parts["end"]) / 2
    loss = knobs.alpha_ce * kd + knobs.alpha_squad * tensors["in.hard_loss"]
    loss.backward()
    assert [part.item() for part in (loss, kd)] == pytest.approx([expected["loss"], expected["kd"]], rel=1e-9)
    for end, ours in ends.items():
        assert parts[end].item() == pytest.approx(expected[f"kd_{end}"], rel=1e-9)
        torch.testing.assert_close(ours.grad, tensors[f"grad.{oracle.name}.student_{end}"], **EXACT)


@reads("tinybert", "soft_cross_entropy_T1", "soft_cross_entropy_T2")
def test_the_paper_formula_equals_tinyberts_soft_cross_entropy(oracle: Oracle) -> None:
    tensors = oracle.tensors
    student = tensors["in.student_logits"].requires_grad_()
    loss = class_prediction_loss(
        student,
        tensors["in.teacher_logits"],
        torch.zeros(3, dtype=torch.long),
        temperature=oracle.knobs.temperature,
        hard_weight=0.0,
        formula="paper",
    ).mean()
    loss.backward()
    assert loss.item() == pytest.approx(oracle.loss, rel=1e-9)
    torch.testing.assert_close(student.grad, tensors[f"grad.{oracle.name}.student_logits"], **EXACT)


@reads("tinybert", "regression_prediction")
def test_the_paper_formula_equals_tinyberts_regression(oracle: Oracle) -> None:
    tensors = oracle.tensors
    student = tensors["in.student_regression"].requires_grad_()
    loss = value_prediction_loss(
        student,
        torch.zeros_like(student),
        tensors["in.regression_labels"],
        hard_weight=0.0,
        formula="paper",
    ).mean()
    loss.backward()
    assert loss.item() == pytest.approx(oracle.loss, rel=1e-9)
    torch.testing.assert_close(student.grad, tensors["grad.regression_prediction.student_regression"], **EXACT)
