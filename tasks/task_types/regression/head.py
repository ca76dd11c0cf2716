"""Regression: one value, squared error with labels and with a teacher, and a head that starts at the labels.

Papers: Devlin et al. 2018, BERT, arXiv:1810.04805; LeCun et al. 1998, Efficient BackProp.
Shape letters: N rows, B batch, M teachers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from torch import Tensor

from tasks.methods.layers.value_head import started_at_labels
from tasks.methods.losses.ensembles import mixed_values
from tasks.methods.losses.means import Loss
from tasks.methods.losses.soft_targets import value_loss, value_prediction_loss
from tasks.task_types.common_head import sequence_classifier
from tasks.task_types.interfaces import Head
from tasks.task_types.types import VALUES


def configure_value(config: Any, labels: Sequence[str]) -> None:
    """Set one output without a name; transformers then takes the squared error."""
    config.num_labels = 1
    config.problem_type = "regression"


def value_targets(labels: Sequence[Any]) -> np.ndarray:
    """Return the values [N]; NaN where a row has no label."""
    return np.asarray([np.nan if label is None else label for label in labels], dtype=np.float32)


def value_label_loss(outputs: Mapping[str, Tensor], targets_B: Tensor) -> Loss:
    """Return the squared error."""
    return value_loss(outputs["logits"], targets_B)


def value_teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss on the teacher's values, mixed with that on the labels; no temperature softens a value."""
    return value_prediction_loss(ours["logits"], theirs["logits"], targets_B, hard_weight=hard_weight, formula=formula)


def mixed_at_any_temperature(values_MN1: Tensor, weights_MN: Tensor, temperature: float) -> Tensor:
    """Return the weighted mean of the teachers' values, at any temperature."""
    return mixed_values(values_MN1, weights_MN)


def at_labels(model: Any, read_targets: Callable[[], np.ndarray]) -> AbstractContextManager[None]:
    """Train an untrained head from the mean and the deviation of the labels."""
    return started_at_labels(model, read_targets())


HEAD = Head(
    outputs=VALUES,
    auto_class=sequence_classifier,
    configure=configure_value,
    targets=value_targets,
    label_loss=value_label_loss,
    teacher_loss=value_teacher_loss,
    mix=mixed_at_any_temperature,
    start_from_labels=at_labels,
)
