"""Embedders: an encoder with pooling, whose vectors a student learns from its teacher; labels judge, and teach nothing.

Papers: Reimers and Gurevych 2019, Sentence-BERT, arXiv:1908.10084; the losses name theirs. Shape letters: N rows, B
batch, D width, M teachers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from tasks.methods.embedders.similarities import similarity_loss
from tasks.methods.embedders.vectors import unit_vector_loss, vector_loss_paper
from tasks.methods.losses.ensembles import mixed_values
from tasks.methods.losses.means import Loss, in_full, mean_of
from tasks.task_types.embedding.prompts import state_prompts
from tasks.task_types.embedding.vectors import VECTOR
from tasks.task_types.interfaces import Head
from tasks.task_types.stored import STATED
from tasks.task_types.types import SENTENCE_VECTORS


def embedder() -> Any:
    """Return the class of encoders with one vector of unit length for each text."""
    from tasks.task_types.embedding.pooled import AutoModel

    return AutoModel


def configure_embedder(config: Any, labels: Sequence[str]) -> None:
    """State the task type, for which transformers has no name; the outputs are those of the encoder."""
    setattr(config, STATED, "embedding")


def no_targets(labels: Sequence[Any]) -> np.ndarray:
    """Return the figures of rows as numbers [N]; NaN where a row has none."""
    return np.asarray([np.nan if label is None else label for label in labels], dtype=np.float32)


def nothing_from_labels(outputs: Mapping[str, Tensor], targets_B: Tensor) -> Loss:
    """Return 0: a figure belongs to two texts, and a batch has texts one by one."""
    return mean_of(0.0 * in_full(outputs[VECTOR]).sum(), 0)


def vector_teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss on the teacher's vectors or, where the widths differ, on the similarities among them. The weight
    of labels is not read, since they teach nothing: a part of the loss that is always 0 would only shrink the other."""
    student_BD, teacher_BE = ours[VECTOR], theirs[VECTOR]
    if student_BD.shape[-1] != teacher_BE.shape[-1]:
        return similarity_loss(student_BD, teacher_BE)
    return (vector_loss_paper if formula == "paper" else unit_vector_loss)(student_BD, teacher_BE)


def mixed_vectors(vectors_MND: Tensor, weights_MN: Tensor, temperature: float) -> Tensor:
    """Return the weighted mean of the teachers' vectors, at unit length."""
    return F.normalize(mixed_values(vectors_MND, weights_MN), dim=-1)


def as_it_is(model: Any, read_targets: Callable[[], np.ndarray]) -> AbstractContextManager[None]:
    """Leave the model alone: it has no head that could start from labels."""
    return nullcontext()


HEAD = Head(
    outputs=SENTENCE_VECTORS,
    auto_class=embedder,
    configure=configure_embedder,
    targets=no_targets,
    label_loss=nothing_from_labels,
    teacher_loss=vector_teacher_loss,
    mix=mixed_vectors,
    start_from_labels=as_it_is,
    state_prompts=state_prompts,
)
