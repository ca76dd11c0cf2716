"""Tags of words: cross entropy with labels and softened probabilities with a teacher, averaged over words.

A word's tag is predicted at its first piece (Devlin et al. 2018, BERT, arXiv:1810.04805); soft targets: Hinton et al.
2015, arXiv:1503.02531. Shape letters: N rows, U words of all rows, C tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from tasks.methods.losses.ensembles import mixed_distributions
from tasks.methods.losses.means import Loss
from tasks.methods.losses.soft_targets import class_loss, class_prediction_loss
from tasks.task_types.common_head import as_drawn, labels_as_texts, token_classifier
from tasks.task_types.interfaces import Head
from tasks.task_types.stored import STATED
from tasks.task_types.tokens.sentence import SENTENCE
from tasks.task_types.types import TAG_LOGITS


def configure_tags(config: Any, labels: Sequence[str]) -> None:
    """Set the number and the names of the tags, and the type, which transformers does not state."""
    config.num_labels = len(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {name: index for index, name in enumerate(labels)}
    setattr(config, STATED, "tokens")


def tag_loss(outputs: Mapping[str, Tensor], targets_U: Tensor) -> Loss:
    """Return the cross entropy with the tags, averaged over words."""
    return class_loss(outputs["logits"], targets_U)


def tag_teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss on the teacher's softened probabilities, mixed with that on the tags, averaged over words."""
    mixture = {"temperature": temperature, "hard_weight": hard_weight}
    return class_prediction_loss(ours["logits"], theirs["logits"], targets_B, **mixture, formula=formula)


HEAD = Head(
    outputs=TAG_LOGITS,
    auto_class=token_classifier,
    configure=configure_tags,
    targets=labels_as_texts,
    label_loss=tag_loss,
    teacher_loss=tag_teacher_loss,
    mix=mixed_distributions,
    start_from_labels=as_drawn,
    units=SENTENCE,
)
