"""Ranking: one score for each text of a query, as a cross-encoder gives it (Nogueira and Cho 2019, arXiv:1901.04085).

Labels: binary cross entropy with relevance, text by text. Teachers: by default margins, the differences of scores
within a query (Hofstätter et al. 2020, arXiv:2010.02666); also scores, or lists (``formula``). Shape letters: N rows, U
texts of a batch, M teachers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks.methods.losses.ensembles import mixed_values
from tasks.methods.losses.lists import list_prediction_loss, relevance_loss
from tasks.methods.losses.means import Loss
from tasks.task_types.common_head import as_drawn, labels_as_texts, sequence_classifier
from tasks.task_types.interfaces import Head
from tasks.task_types.ranking.candidates import CANDIDATES, GRADE_BITS, UNGRADED
from tasks.task_types.stored import STATED
from tasks.task_types.types import RELEVANCE_SCORES


def configure_ranking(config: Any, labels: Sequence[str]) -> None:
    """State the task type, for which transformers has no name; a text has one score."""
    config.num_labels = 1
    setattr(config, STATED, "ranking")


def grades_of(targets_U: Tensor) -> Tensor:
    """Return the grades in targets [U], -1 where they are unknown."""
    grades_U = targets_U & ((1 << GRADE_BITS) - 1)
    return torch.where(grades_U == UNGRADED, -1, grades_U)


def ranking_loss(outputs: Mapping[str, Tensor], targets_B: Tensor) -> Loss:
    """Return the binary cross entropy with relevance; targets are those of texts."""
    return relevance_loss(outputs["logits"], grades_of(targets_B))


def ranking_teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss on the teacher's scores of the texts of each query, mixed with that on relevance."""
    mixture = {"temperature": temperature, "hard_weight": hard_weight}
    rows_U, grades_U = targets_B >> GRADE_BITS, grades_of(targets_B)
    return list_prediction_loss(ours["logits"], theirs["logits"], rows_U, grades_U, **mixture, formula=formula)


def mixed_rankings(scores_MN1: Tensor, weights_MN: Tensor, temperature: float) -> Tensor:
    """Return the weighted mean of the teachers' scores."""
    return mixed_values(scores_MN1, weights_MN)


HEAD = Head(
    outputs=RELEVANCE_SCORES,
    auto_class=sequence_classifier,
    configure=configure_ranking,
    targets=labels_as_texts,
    label_loss=ranking_loss,
    teacher_loss=ranking_teacher_loss,
    mix=mixed_rankings,
    start_from_labels=as_drawn,
    units=CANDIDATES,
)
