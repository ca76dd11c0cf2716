"""Choices: one score for each option, cross entropy with the right one and softened probabilities with a teacher, over
the options of each row.

Each option is read beside the question by itself, and a softmax over the scores of a row's own options is the answer
(Devlin et al. 2018, BERT, arXiv:1810.04805, section 4.4); soft targets: Hinton et al. 2015, arXiv:1503.02531. The
order of options does not matter. Shape letters: N rows, B rows of a batch, U options of a batch, K options of the row
that has most, M teachers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks.methods.losses.ensembles import mixed_values
from tasks.methods.losses.lists import by_row_of_units
from tasks.methods.losses.means import Loss
from tasks.methods.losses.soft_targets import class_loss, class_prediction_loss
from tasks.task_types.choices.options import BITS, IS_RIGHT, OPTION_PARTS
from tasks.task_types.common_head import as_drawn, labels_as_texts
from tasks.task_types.interfaces import Head
from tasks.task_types.stored import STATED
from tasks.task_types.types import OPTION_SCORES


def model_of_options() -> Any:
    """Return the class of models with one score for each option."""
    from tasks.task_types.choices.models import AutoModelForOptions

    return AutoModelForOptions


def configure_options(config: Any, labels: Sequence[str]) -> None:
    """State the task type, for which transformers has no name; an option has one score."""
    config.num_labels = 1
    setattr(config, STATED, "choices")


def rows_of_options(scores_U1: Tensor, targets_U: Tensor) -> Tensor:
    """Return scores by row [B, K], those of absent options very low; options of a row stand together."""
    return by_row_of_units(scores_U1, targets_U >> BITS)


def right_options(targets_U: Tensor) -> Tensor:
    """Return the place of the right option of each row [B], -1 where it is unknown."""
    is_right_U = (targets_U & ((1 << BITS) - 1)) == IS_RIGHT
    is_right_BK = rows_of_options(is_right_U.float()[:, None], targets_U) > 0
    return torch.where(is_right_BK.any(1), is_right_BK.int().argmax(1), -1)


def option_loss(outputs: Mapping[str, Tensor], targets_B: Tensor) -> Loss:
    """Return the cross entropy with the right options, averaged over rows; targets are those of options."""
    return class_loss(rows_of_options(outputs["logits"], targets_B), right_options(targets_B))


def option_teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss on the teacher's softened probabilities of a row's options, mixed with that on the right ones;
    targets are those of options."""
    student_BK, teacher_BK = (rows_of_options(each["logits"], targets_B) for each in (ours, theirs))
    mixture = {"temperature": temperature, "hard_weight": hard_weight}
    return class_prediction_loss(student_BK, teacher_BK, right_options(targets_B), **mixture, formula=formula)


def mixed_scores(scores_MN1: Tensor, weights_MN: Tensor, temperature: float) -> Tensor:
    """Return the weighted mean of the teachers' scores: the geometric mean of their probabilities."""
    return mixed_values(scores_MN1, weights_MN)


HEAD = Head(
    outputs=OPTION_SCORES,
    auto_class=model_of_options,
    configure=configure_options,
    targets=labels_as_texts,
    label_loss=option_loss,
    teacher_loss=option_teacher_loss,
    mix=mixed_scores,
    start_from_labels=as_drawn,
    units=OPTION_PARTS,
)
