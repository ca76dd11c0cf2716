"""Scores of the texts of one query, or of the options of one question: losses over the units of a row.

Margins: Hofstätter et al. 2020, arXiv:2010.02666 (MarginMSE: the student copies differences of scores, so that the
scale of a teacher's scores, which nothing fixes, does not matter); lists: Hinton et al. 2015, arXiv:1503.02531, over
the texts of a query, as Cao et al. 2007 (ListNet, ICML) compare them. Shape letters: B rows, U units of all rows, K
units of the row that has most.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.errors import RecipeError
from tasks.methods.losses.means import Loss, in_full, mean_of
from tasks.methods.losses.soft_targets import soft_target_loss

ABSENT_UNIT = -1e4
"""The score of a unit that a row does not have: its probability is 0, and so are its terms of a divergence."""


def places_in_rows(row_U: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the row of each unit and its place in there [U], and the number of units of each row [B]; units of one row
    stand together, and have one number in ``row_U``."""
    _, at_U, counts_B = torch.unique_consecutive(row_U, return_inverse=True, return_counts=True)
    starts_B = counts_B.cumsum(0) - counts_B
    return at_U, torch.arange(len(row_U), device=row_U.device) - starts_B[at_U], counts_B


def by_row_of_units(scores_U1: Tensor, row_U: Tensor) -> Tensor:
    """Return scores by row [B, K], those of absent units very low; ``row_U`` says which units are of one row, and they
    stand together."""
    at_U, place_U, counts_B = places_in_rows(row_U)
    scores_U, longest = in_full(scores_U1).squeeze(1), int(counts_B.max()) if len(counts_B) else 0
    return scores_U.new_full((len(counts_B), longest), ABSENT_UNIT).index_put((at_U, place_U), scores_U)


def score_loss(student_U1: Tensor, teacher_U1: Tensor, row_U: Tensor, temperature: float) -> Loss:
    """Return the squared distance of scores; for a teacher whose scale is the student's own."""
    total = F.mse_loss(in_full(student_U1), in_full(teacher_U1.detach()), reduction="sum")
    return mean_of(total, len(student_U1))


def margin_loss(student_U1: Tensor, teacher_U1: Tensor, row_U: Tensor, temperature: float) -> Loss:
    """Return the squared distance of differences of scores, averaged over all pairs of units of one row."""
    apart_U = in_full(student_U1).squeeze(1) - in_full(teacher_U1.detach()).squeeze(1)
    at_U, _, counts_B = places_in_rows(row_U)
    sums_B = apart_U.new_zeros(len(counts_B)).index_add(0, at_U, apart_U)
    # Over the pairs of a row, the squared differences of K numbers sum to K times their squared distances to the mean.
    means_U = (sums_B / counts_B)[at_U]
    total = (counts_B[at_U] * (apart_U - means_U).square()).sum()
    return mean_of(total, (counts_B * (counts_B - 1) // 2).sum())


def list_loss(student_U1: Tensor, teacher_U1: Tensor, row_U: Tensor, temperature: float) -> Loss:
    """Return T² · KL(teacher || student) of the softened shares of a row's units, averaged over rows."""
    student_BK, teacher_BK = (by_row_of_units(each, row_U) for each in (student_U1, teacher_U1))
    return soft_target_loss(student_BK, teacher_BK, temperature=temperature)


LIST_FORMULAS: dict[str, Callable[[Tensor, Tensor, Tensor, float], Loss]] = {
    "default": margin_loss,
    "margins": margin_loss,
    "scores": score_loss,
    "lists": list_loss,
}


def relevance_loss(scores_U1: Tensor, grades_U: Tensor) -> Loss:
    """Return the binary cross entropy of scores with relevance, averaged over units that have a grade: one of 0 is not
    relevant, any above is; an unknown one is negative."""
    known_U = grades_U >= 0
    scores_U = in_full(scores_U1).squeeze(1)
    each_U = F.binary_cross_entropy_with_logits(scores_U, (grades_U > 0).to(scores_U.dtype), reduction="none")
    return mean_of((each_U * known_U).sum(), known_U.sum())


def list_prediction_loss(
    student_U1: Tensor,
    teacher_U1: Tensor,
    row_U: Tensor,
    grades_U: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss against a teacher's scores, mixed with that on relevance. Raises RecipeError for an unknown
    formula or an illegal weight."""
    if formula not in LIST_FORMULAS:
        raise RecipeError(f"unknown formula {formula!r} for ranking; choose one of {', '.join(LIST_FORMULAS)}")
    if not 0.0 <= hard_weight <= 1.0:
        raise RecipeError(f"hard_weight is {hard_weight}; it must lie between 0 (teacher only) and 1 (labels only)")
    soft = LIST_FORMULAS[formula](student_U1, teacher_U1, row_U, temperature)
    if hard_weight == 0.0:
        return soft
    return (1.0 - hard_weight) * soft + hard_weight * relevance_loss(student_U1, grades_U)
