"""Graphs that return the logarithm of a count. Shape letter: N rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.task_types.common_graph import one_pass
from tasks.task_types.interfaces import Graph
from tasks.task_types.stored import STATED
from tasks.task_types.types import VALUES


def card(config: Any) -> dict[str, Any]:
    """Return the output, and the task type by which it is decoded."""
    return {"output": "logits", "labels": None, STATED: "word-count"}


def predictions(outputs: Mapping[str, np.ndarray], card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the count of each row."""
    return [{"words": int(np.rint(np.exp(value)))} for value in outputs["logits"][:, 0]]


def equal(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether both counts are the same."""
    same_N: np.ndarray = np.rint(np.exp(ours["logits"][:, 0])) == np.rint(np.exp(theirs["logits"][:, 0]))
    return same_N


GRAPH = Graph(outputs=VALUES, card=card, predictions=predictions, equal=equal, timed_inputs=one_pass)
