"""Graphs that return one value. Shape letter: N rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.task_types.common_graph import one_pass
from tasks.task_types.interfaces import Card, Graph, Printed
from tasks.task_types.types import VALUES

NEAR = 0.01
"""The largest difference of two values that count as equal."""


def card_of_value(config: Any) -> Card:
    """Return the output; a value has no label."""
    return {"output": "logits", "labels": None}


def plain_values(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return the value of each row."""
    return [{"value": float(value)} for value in outputs["logits"][:, 0]]


def nearly_same_value(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether both values are nearly the same."""
    same_N: np.ndarray = np.abs(ours["logits"] - theirs["logits"])[:, 0] < NEAR
    return same_N


GRAPH = Graph(
    outputs=VALUES, card=card_of_value, predictions=plain_values, equal=nearly_same_value, timed_inputs=one_pass
)
