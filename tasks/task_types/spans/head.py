"""Beginning and end of an answer in a passage: cross entropy with the true pieces and softened probabilities with a
teacher, averaged over both ends and over windows.

Extractive answers: Devlin et al. 2018, BERT, arXiv:1810.04805; a teacher's answers: Sanh et al. 2019, DistilBERT,
arXiv:1910.01108, section 3; soft targets: Hinton et al. 2015, arXiv:1503.02531. Shape letters: N rows, U units of a
batch, W windows, P units of the longest window, M teachers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks.errors import ModelError
from tasks.methods.losses.lists import by_row_of_units, places_in_rows
from tasks.methods.losses.means import Loss
from tasks.methods.losses.soft_targets import class_loss, class_prediction_loss
from tasks.task_types.common_head import as_drawn, labels_as_texts
from tasks.task_types.interfaces import Head
from tasks.task_types.spans.passage import END, PIECES_OF_PASSAGE, START
from tasks.task_types.stored import STATED
from tasks.task_types.types import SPAN_LOGITS

ENDS = ((START, 0), (END, 1))
"""Each output, and its column among targets."""


def answerer() -> Any:
    """Return the class of models with a beginning and an end for each text."""
    from transformers import AutoModelForQuestionAnswering

    return AutoModelForQuestionAnswering


def configure_ends(config: Any, labels: Sequence[str]) -> None:
    """Set the two outputs of each token, and the type, which transformers does not state."""
    config.num_labels = 2
    setattr(config, STATED, "spans")


def by_window(values_U: Tensor, targets_U3: Tensor) -> Tensor:
    """Return the values of units by window [W, P], very low where a window is shorter."""
    return by_row_of_units(values_U[:, None], targets_U3[:, 2])


def true_places(targets_U3: Tensor, column: int) -> Tensor:
    """Return the place of the true unit in each window [W]; -1 for windows without a label."""
    at_U, place_U, counts_W = places_in_rows(targets_U3[:, 2])
    found_W = torch.full((len(counts_W),), -1, dtype=torch.int64, device=targets_U3.device)
    there = targets_U3[:, column] == 1
    return found_W.index_put((at_U[there],), place_U[there])


def ends_loss(outputs: Mapping[str, Tensor], targets_U3: Tensor) -> Loss:
    """Return the cross entropy with the true pieces, averaged over both ends and labelled windows."""
    first, second = (
        class_loss(by_window(outputs[name], targets_U3), true_places(targets_U3, column)) for name, column in ENDS
    )
    return 0.5 * first + 0.5 * second


def ends_teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss on the teacher's softened probabilities, mixed with that on the true pieces, averaged over both
    ends and windows."""
    first, second = (
        class_prediction_loss(
            by_window(ours[name], targets_B),
            by_window(theirs[name], targets_B),
            true_places(targets_B, column),
            temperature=temperature,
            hard_weight=hard_weight,
            formula=formula,
        )
        for name, column in ENDS
    )
    return 0.5 * first + 0.5 * second


def refuse_mixture(logits_MNC: Tensor, weights_MN: Tensor, temperature: float) -> Tensor:
    """Raise ModelError: a mixture needs the windows of units, which stored answers do not state."""
    raise ModelError("answers in a text are not mixed; remove the section ensemble")


HEAD = Head(
    outputs=SPAN_LOGITS,
    auto_class=answerer,
    configure=configure_ends,
    targets=labels_as_texts,
    label_loss=ends_loss,
    teacher_loss=ends_teacher_loss,
    mix=refuse_mixture,
    start_from_labels=as_drawn,
    units=PIECES_OF_PASSAGE,
)
