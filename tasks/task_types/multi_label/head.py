"""Multi-label classification: the log-odds of each label by itself, binary cross entropy with labels, softened
probabilities of each label with a teacher.

Targets are sets of labels as numbers: bit c says whether a row has label c. Shape letters: N rows, B batch, M teachers,
C labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from tasks.methods.losses.label_sets import label_set_loss, label_set_prediction_loss, mixed_label_sets
from tasks.methods.losses.means import Loss
from tasks.task_types.common_head import as_drawn, sequence_classifier
from tasks.task_types.interfaces import Head
from tasks.task_types.types import LABEL_LOGITS


def configure_labels(config: Any, labels: Sequence[str]) -> None:
    """Set the number and the names of the labels. Thresholds of an earlier training are forgotten: they are tuned
    anew."""
    config.num_labels = len(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {name: index for index, name in enumerate(labels)}
    config.problem_type = "multi_label_classification"
    config.limbeck_thresholds = None


def set_targets(labels: Sequence[Any]) -> np.ndarray:
    """Return the sets [N]; -1 where a row has no label."""
    return np.asarray([-1 if label is None else label for label in labels], dtype=np.int64)


def set_label_loss(outputs: Mapping[str, Tensor], targets_B: Tensor) -> Loss:
    """Return the binary cross entropy with the labels."""
    return label_set_loss(outputs["logits"], targets_B)


def set_teacher_loss(
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
    return label_set_prediction_loss(ours["logits"], theirs["logits"], targets_B, **mixture, formula=formula)


HEAD = Head(
    outputs=LABEL_LOGITS,
    auto_class=sequence_classifier,
    configure=configure_labels,
    targets=set_targets,
    label_loss=set_label_loss,
    teacher_loss=set_teacher_loss,
    mix=mixed_label_sets,
    start_from_labels=as_drawn,
)
