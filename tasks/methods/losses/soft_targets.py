"""Soft-target distillation: the student copies the teacher's softened class probabilities.

Paper: Hinton, Vinyals, Dean 2015, "Distilling the Knowledge in a Neural Network", arXiv:1503.02531.
The ``paper`` formula is that of TinyBERT's published code (Jiao et al. 2019, arXiv:1909.10351).
Shape letters in this file: B batch, C classes (1 for regression).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.errors import DataError, ModelError, RecipeError
from tasks.methods.losses.means import Loss, in_full, mean_of

FORMULAS = ("default", "paper")


def soft_target_loss(student_BC: Tensor, teacher_BC: Tensor, *, temperature: float) -> Loss:
    """Return T² · KL(teacher || student) at ``temperature`` T, in nats per example."""
    return mean_of(softened_sum(student_BC, teacher_BC, temperature=temperature), len(student_BC))


def softened_sum(student_BC: Tensor, teacher_BC: Tensor, *, temperature: float) -> Tensor:
    """Return T² · KL(teacher || student), summed over examples."""
    student_logp_BC, teacher_logp_BC = _softened(student_BC, teacher_BC, temperature)
    return F.kl_div(student_logp_BC, teacher_logp_BC, reduction="sum", log_target=True) * temperature**2


def soft_cross_entropy_paper(student_BC: Tensor, teacher_BC: Tensor, *, temperature: float) -> Loss:
    """Return TinyBERT's soft cross entropy: a mean over batch and classes, without the factor T²."""
    student_logp_BC, teacher_logp_BC = _softened(student_BC, teacher_BC, temperature)
    return -1.0 * mean_of((teacher_logp_BC.exp() * student_logp_BC).sum(), student_logp_BC.numel())


def class_loss(student_BC: Tensor, labels_B: Tensor) -> Loss:
    """Return the cross entropy with gold classes, averaged over the labelled rows; 0 when no row has a label. A row is
    unlabelled when its class is negative."""
    _require_labels(student_BC, labels_B)
    kept_B = labels_B >= 0
    total = F.cross_entropy(
        in_full(student_BC), labels_B.masked_fill(~kept_B, -100), ignore_index=-100, reduction="sum"
    )
    return mean_of(total, kept_B.sum())


def value_loss(student_B1: Tensor, labels_B: Tensor) -> Loss:
    """Return the squared error against gold values, averaged over the labelled rows; 0 when no row has a label. A row
    is unlabelled when its value is NaN."""
    _require_labels(student_B1, labels_B)
    if student_B1.shape[1] != 1:
        raise ModelError(f"a regression model must give one value per row, not {student_B1.shape[1]}; set num_labels=1")
    student_B = in_full(student_B1).squeeze(1)
    kept_B = ~labels_B.isnan()
    # NaN is replaced before the subtraction: zero times NaN would still give a NaN gradient.
    target_B = torch.where(kept_B, labels_B.to(student_B.dtype), student_B.detach())
    return mean_of((student_B - target_B).square().sum(), kept_B.sum())


def class_prediction_loss(
    student_BC: Tensor,
    teacher_BC: Tensor,
    labels_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str = "default",
) -> Loss:
    """Return the loss of the prediction phase on classes: soft targets, mixed with the labels' by ``hard_weight``;
    ``paper`` gives TinyBERT's soft cross entropy alone."""
    _require_mixture(formula, hard_weight)
    if formula == "paper":
        return soft_cross_entropy_paper(student_BC, teacher_BC, temperature=temperature)
    soft = soft_target_loss(student_BC, teacher_BC, temperature=temperature)
    if hard_weight == 0.0:
        return soft
    return (1.0 - hard_weight) * soft + hard_weight * class_loss(student_BC, labels_B)


def value_prediction_loss(
    student_B1: Tensor, teacher_B1: Tensor, labels_B: Tensor, *, hard_weight: float, formula: str = "default"
) -> Loss:
    """Return the loss of the prediction phase on values: the squared error against the teacher's, mixed with the
    labels' by ``hard_weight``; ``paper`` gives the labels' alone, as TinyBERT's code."""
    _require_mixture(formula, hard_weight)
    if formula == "paper":
        return value_loss(student_B1, labels_B)
    _require_same_shape(student_B1, teacher_B1)
    total = F.mse_loss(in_full(student_B1), in_full(teacher_B1.detach()), reduction="sum")
    soft = mean_of(total, student_B1.numel())
    return soft if hard_weight == 0.0 else (1.0 - hard_weight) * soft + hard_weight * value_loss(student_B1, labels_B)


def _softened(student_BC: Tensor, teacher_BC: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    _require_same_shape(student_BC, teacher_BC)
    if not temperature > 0.0:
        raise RecipeError(f"temperature is {temperature}; it must be greater than 0, and 2 to 8 is usual")
    student_logp_BC = F.log_softmax(in_full(student_BC) / temperature, dim=-1)
    teacher_logp_BC = F.log_softmax(in_full(teacher_BC.detach()) / temperature, dim=-1)
    return student_logp_BC, teacher_logp_BC


def _require_same_shape(student_BC: Tensor, teacher_BC: Tensor) -> None:
    if student_BC.ndim != 2 or student_BC.shape != teacher_BC.shape:
        raise ModelError(
            f"student logits have shape {tuple(student_BC.shape)} and teacher logits {tuple(teacher_BC.shape)}; "
            "both must be [batch, classes] with the same classes: give the student the teacher's label names"
        )


def _require_labels(student_BC: Tensor, labels_B: Tensor) -> None:
    # A label tensor of another shape broadcasts and trains on at a plausible-looking loss.
    if student_BC.ndim != 2 or labels_B.shape != student_BC.shape[:1]:
        raise DataError(
            f"labels have shape {tuple(labels_B.shape)} beside logits of shape {tuple(student_BC.shape)}; "
            "give exactly one label per row, as a flat tensor"
        )


def _require_mixture(formula: str, hard_weight: float) -> None:
    if formula not in FORMULAS:
        raise RecipeError(f"unknown formula {formula!r}; choose one of {', '.join(FORMULAS)}")
    if not 0.0 <= hard_weight <= 1.0:
        raise RecipeError(f"hard_weight is {hard_weight}; it must lie between 0 (teacher only) and 1 (labels only)")
