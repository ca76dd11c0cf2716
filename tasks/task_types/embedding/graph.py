"""Graphs that return the vector of a text, with the pooling inside. Shape letters: N rows, D width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.task_types.common_graph import one_pass
from tasks.task_types.embedding.modules import prompts_of
from tasks.task_types.embedding.vectors import VECTOR
from tasks.task_types.interfaces import Card, Graph, Printed
from tasks.task_types.stored import PROMPT, STATED
from tasks.task_types.types import SENTENCE_VECTORS

NEAR_COSINE = 0.999
"""The smallest cosine of two vectors that count as equal."""
PRINTED_DIGITS = 6
"""Digits of a printed number: vectors have unit length, and float32 has seven."""


def card_of_vector(config: Any) -> Card:
    """Return the output, the task type by which it is decoded, and the prompt before every text, if there is one."""
    prompt = prompts_of(getattr(config, "limbeck_prompts", {}), "the model's config").of_every_text
    return {"output": VECTOR, "labels": None, STATED: "embedding", **({PROMPT: prompt} if prompt else {})}


def plain_vectors(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return the vector of each row."""
    return [{"embedding": [round(float(value), PRINTED_DIGITS) for value in row]} for row in outputs[VECTOR]]


def nearly_same_vector(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether both vectors have nearly the same direction."""
    ours_ND, theirs_ND = (each[VECTOR].astype(np.float64) for each in (ours, theirs))
    lengths_N = np.linalg.norm(ours_ND, axis=-1) * np.linalg.norm(theirs_ND, axis=-1)
    return np.asarray((ours_ND * theirs_ND).sum(-1) >= NEAR_COSINE * lengths_N)


GRAPH = Graph(
    outputs=SENTENCE_VECTORS,
    card=card_of_vector,
    predictions=plain_vectors,
    equal=nearly_same_vector,
    timed_inputs=one_pass,
)
