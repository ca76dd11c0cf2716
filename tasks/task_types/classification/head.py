"""Classification: a logit for each class, cross entropy with labels, softened probabilities with a teacher.

Papers: Devlin et al. 2018, BERT, arXiv:1810.04805; Hinton et al. 2015, arXiv:1503.02531.
Shape letters: N rows, B batch, M teachers, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from tasks.methods.losses.ensembles import mixed_distributions
from tasks.methods.losses.means import Loss
from tasks.methods.losses.soft_targets import class_loss, class_prediction_loss
from tasks.task_types.common_head import as_drawn, sequence_classifier
from tasks.task_types.interfaces import Head
from tasks.task_types.types import CLASS_LOGITS


def configure_classes(config: Any, labels: Sequence[str]) -> None:
    """Set the number and the names of the classes."""
    config.num_labels = len(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {name: index for index, name in enumerate(labels)}
    config.problem_type = "single_label_classification"


def class_targets(labels: Sequence[Any]) -> np.ndarray:
    """Return the numbers of the classes [N]; -1 where a row has no label."""
    return np.asarray([-1 if label is None else label for label in labels], dtype=np.int64)


def class_label_loss(outputs: Mapping[str, Tensor], targets_B: Tensor) -> Loss:
    """Return the cross entropy with the labels."""
    return class_loss(outputs["logits"], targets_B)


def class_teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss on the teacher's softened probabilities, mixed with that on the labels."""
    mixture = {"temperature": temperature, "hard_weight": hard_weight}
    return class_prediction_loss(ours["logits"], theirs["logits"], targets_B, **mixture, formula=formula)


HEAD = Head(
    outputs=CLASS_LOGITS,
    auto_class=sequence_classifier,
    configure=configure_classes,
    targets=class_targets,
    label_loss=class_label_loss,
    teacher_loss=class_teacher_loss,
    mix=mixed_distributions,
    start_from_labels=as_drawn,
)
