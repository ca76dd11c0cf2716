"""Word counts: a Poisson regression, whose model says the logarithm of the expected count.

Paper: Cameron and Trivedi 1998, "Regression Analysis of Count Data", Cambridge University Press. Shape letters: N rows,
B batch, M teachers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.methods.losses.ensembles import mixed_values
from tasks.methods.losses.means import Loss, in_full, mean_of
from tasks.methods.losses.soft_targets import value_prediction_loss
from tasks.task_types.common_head import sequence_classifier
from tasks.task_types.interfaces import Head
from tasks.task_types.types import VALUES

UNLABELLED = -1.0


def configure(config: Any, labels: Sequence[str]) -> None:
    """Set one output, and state the task type: transformers has no name for it."""
    config.num_labels = 1
    config.limbeck_task_type = "word-count"


def targets(labels: Sequence[Any]) -> np.ndarray:
    """Return the counts [N]; -1 where a row has no label."""
    return np.asarray([UNLABELLED if label is None else label for label in labels], dtype=np.float32)


def label_loss(outputs: Mapping[str, Tensor], targets_B: Tensor) -> Loss:
    """Return the negative log-likelihood of a Poisson distribution, without its constant."""
    known_B = targets_B >= 0
    log_rate_B = in_full(outputs["logits"]).squeeze(1)
    loss_B = log_rate_B.exp() - targets_B.clamp(min=0) * log_rate_B
    return mean_of(torch.where(known_B, loss_B, 0.0).sum(), known_B.sum())


def teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the squared error to the teacher's logarithms, mixed with the loss on the labels."""
    unlabelled_B = torch.full_like(targets_B, torch.nan)
    soft = value_prediction_loss(ours["logits"], theirs["logits"], unlabelled_B, hard_weight=0.0, formula="default")
    return (1.0 - hard_weight) * soft + hard_weight * label_loss(ours, targets_B)


def mix(values_MN1: Tensor, weights_MN: Tensor, temperature: float) -> Tensor:
    """Return the weighted mean of the teachers' logarithms."""
    return mixed_values(values_MN1, weights_MN)


def as_it_is(model: Any, read_targets: Callable[[], np.ndarray]) -> AbstractContextManager[None]:
    """Leave the untrained head alone."""
    return nullcontext()


HEAD = Head(
    outputs=VALUES,
    auto_class=sequence_classifier,
    configure=configure,
    targets=targets,
    label_loss=label_loss,
    teacher_loss=teacher_loss,
    mix=mix,
    start_from_labels=as_it_is,
)
