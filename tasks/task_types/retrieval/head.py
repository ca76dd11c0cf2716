"""Embedders for search: beside a teacher's vectors, queries and the passages that answer them teach.

A training that reads them keeps both texts of a pair in one batch. Shape letters: N rows, B batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from tasks.methods.embedders.in_batch import in_batch_loss
from tasks.methods.losses.means import Loss
from tasks.task_types.embedding.head import (
    as_it_is,
    configure_embedder,
    embedder,
    mixed_vectors,
    no_targets,
    vector_teacher_loss,
)
from tasks.task_types.embedding.prompts import state_prompts
from tasks.task_types.embedding.vectors import VECTOR
from tasks.task_types.interfaces import Head
from tasks.task_types.types import SENTENCE_VECTORS

NO_PAIR = -1
"""The target of a text that belongs to no other, as further texts to learn from do not."""
TEXT_BITS, PAIR_BITS = 32, 30
"""A target has, from its last bit on: whether the passage answers, whether the text is the passage, the number of the
pair, and that of the text."""


def pair_targets(texts: Sequence[str], marks: Sequence[Any]) -> np.ndarray:
    """Return the targets [N] of texts in pairs, each query before its passage, from the marks of the pairs; a text
    without a mark belongs to none."""
    known: dict[str, int] = {}
    text_N = np.asarray([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)
    place_N = np.arange(len(texts))
    answers_N = np.asarray([mark == 1 for mark in marks], dtype=np.int64)
    targets_N = text_N << TEXT_BITS | place_N // 2 << 2 | place_N % 2 << 1 | answers_N
    return np.where(np.asarray([mark is None for mark in marks], dtype=bool), NO_PAIR, targets_N)


def retrieval_loss(outputs: Mapping[str, Tensor], targets_B: Tensor) -> Loss:
    """Return the loss of queries that look for their passage among those of the batch."""
    pair_B = (targets_B >> 2 & (1 << PAIR_BITS) - 1).where(targets_B >= 0, NO_PAIR)
    is_second_B, answers_B = ((targets_B >> bit & 1).bool() for bit in (1, 0))
    return in_batch_loss(outputs[VECTOR], pair_B, targets_B >> TEXT_BITS, is_second_B, answers_B)


def retrieval_teacher_loss(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    targets_B: Tensor,
    *,
    temperature: float,
    hard_weight: float,
    formula: str,
) -> Loss:
    """Return the loss on the teacher's vectors, mixed with that of the pairs."""
    soft = vector_teacher_loss(
        ours, theirs, targets_B, temperature=temperature, hard_weight=hard_weight, formula=formula
    )
    if hard_weight == 0.0:
        return soft
    return (1.0 - hard_weight) * soft + hard_weight * retrieval_loss(ours, targets_B)


HEAD = Head(
    outputs=SENTENCE_VECTORS,
    auto_class=embedder,
    configure=configure_embedder,
    targets=no_targets,
    label_loss=retrieval_loss,
    teacher_loss=retrieval_teacher_loss,
    mix=mixed_vectors,
    start_from_labels=as_it_is,
    state_prompts=state_prompts,
    pair_targets=pair_targets,
)
