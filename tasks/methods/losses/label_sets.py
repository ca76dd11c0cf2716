"""Soft targets for sets of labels: each output is the log-odds of one label, a Bernoulli distribution of its own.

Papers: Hinton, Vinyals, Dean 2015, "Distilling the Knowledge in a Neural Network", arXiv:1503.02531, applied to every
label by itself as in Yang et al. 2023, "Multi-Label Knowledge Distillation", arXiv:2308.06453 (one versus all). The
losses of labels and of the teacher are both means over rows and labels, so that ``hard_weight`` mixes like with like.
Shape letters in this file: M teachers, N rows, B batch, C labels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.errors import DataError, ModelError, RecipeError
from tasks.methods.losses.means import Loss, in_full, mean_of
from tasks.methods.losses.soft_targets import FORMULAS


def label_set_loss(student_BC: Tensor, sets_B: Tensor) -> Loss:
    """Return the binary cross entropy with gold sets, averaged over labels and labelled rows; 0 when no row is
    labelled. Bit c of a set says whether it has label c; a row is unlabelled when its set is negative."""
    if student_BC.ndim != 2 or sets_B.shape != student_BC.shape[:1]:
        raise DataError(
            f"label sets have shape {tuple(sets_B.shape)} beside logits of shape {tuple(student_BC.shape)}; give "
            f"exactly one set per row, as a flat tensor of whole numbers"
        )
    logits_BC, kept_B = in_full(student_BC), sets_B >= 0
    bits_C = torch.arange(student_BC.shape[1], device=sets_B.device)
    target_BC = ((sets_B.clamp(min=0)[:, None] >> bits_C) & 1).to(logits_BC.dtype)
    loss_BC = F.binary_cross_entropy_with_logits(logits_BC, target_BC, reduction="none")
    return mean_of(torch.where(kept_B[:, None], loss_BC, 0.0).sum(), kept_B.sum() * student_BC.shape[1])


def soft_label_set_loss(student_BC: Tensor, teacher_BC: Tensor, *, temperature: float) -> Loss:
    """Return T² · KL(teacher || student) of each label's Bernoulli distribution at ``temperature`` T, averaged over
    rows and labels."""
    ours_BC, theirs_BC = softened(student_BC, teacher_BC, temperature)
    share_BC = theirs_BC.sigmoid()
    divergence_BC = share_BC * (F.logsigmoid(theirs_BC) - F.logsigmoid(ours_BC)) + (1 - share_BC) * (
        F.logsigmoid(-theirs_BC) - F.logsigmoid(-ours_BC)
    )
    return mean_of(divergence_BC.sum() * temperature**2, student_BC.numel())


def label_set_prediction_loss(
    student_BC: Tensor,
    teacher_BC: Tensor,
    sets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str = "default",
) -> Loss:
    """Return the loss of the prediction phase on sets of labels: soft targets, mixed with the labels' by
    ``hard_weight``; ``paper`` gives the soft binary cross entropy alone, without the factor T², as TinyBERT's code does
    with classes."""
    if formula not in FORMULAS:
        raise RecipeError(f"unknown formula {formula!r}; choose one of {', '.join(FORMULAS)}")
    if not 0.0 <= hard_weight <= 1.0:
        raise RecipeError(f"hard_weight is {hard_weight}; it must lie between 0 (teacher only) and 1 (labels only)")
    if formula == "paper":
        ours_BC, theirs_BC = softened(student_BC, teacher_BC, temperature)
        total = F.binary_cross_entropy_with_logits(ours_BC, theirs_BC.sigmoid(), reduction="sum")
        return mean_of(total, student_BC.numel())
    soft = soft_label_set_loss(student_BC, teacher_BC, temperature=temperature)
    if hard_weight == 0.0:
        return soft
    return (1.0 - hard_weight) * soft + hard_weight * label_set_loss(student_BC, sets_B)


def mixed_label_sets(logits_MNC: Tensor, weights_MN: Tensor, temperature: float) -> Tensor:
    """Return logits [N, C] that, divided by ``temperature``, give the mixture of the teachers' probabilities of each
    label, softened at it. Raises RecipeError for an illegal temperature."""
    require_temperature(temperature)
    softened_MNC, shares_MN1 = logits_MNC.double() / temperature, weights_MN[..., None].double().log()
    yes_NC = torch.logsumexp(F.logsigmoid(softened_MNC) + shares_MN1, 0)
    no_NC = torch.logsumexp(F.logsigmoid(-softened_MNC) + shares_MN1, 0)
    return (temperature * (yes_NC - no_NC)).to(logits_MNC.dtype)


def softened(student_BC: Tensor, teacher_BC: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-odds of both, divided by the temperature. Raises ModelError for different shapes."""
    if student_BC.ndim != 2 or student_BC.shape != teacher_BC.shape:
        raise ModelError(
            f"student logits have shape {tuple(student_BC.shape)} and teacher logits {tuple(teacher_BC.shape)}; both "
            f"must be [batch, labels] with the same labels: give the student the teacher's label names"
        )
    require_temperature(temperature)
    return in_full(student_BC) / temperature, in_full(teacher_BC.detach()) / temperature


def require_temperature(temperature: float) -> None:
    """Raise RecipeError for a temperature that is not positive."""
    if not temperature > 0.0:
        raise RecipeError(f"temperature is {temperature}; it must be greater than 0, and 2 to 8 is usual")
