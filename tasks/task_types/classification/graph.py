"""Graphs that return logits of classes. Shape letters: N rows, C classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from tasks.task_types.common_graph import one_pass
from tasks.task_types.interfaces import Card, Graph, Printed
from tasks.task_types.types import CLASS_LOGITS


def card_of_classes(config: Any) -> Card:
    """Return the output and the names of the classes."""
    return {"output": "logits", "labels": [config.id2label[number] for number in range(config.num_labels)]}


def labels_with_probabilities(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return the label of each row and its probability."""
    logits_NC = outputs["logits"]
    odds_NC = np.exp(logits_NC - logits_NC.max(-1, keepdims=True))
    shares_NC = odds_NC / odds_NC.sum(-1, keepdims=True)
    labels = cast(list[str], card["labels"])
    return [{"label": labels[int(row.argmax())], "score": float(row.max())} for row in shares_NC]


def same_class(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether both predict the same class."""
    same_N: np.ndarray = ours["logits"].argmax(-1) == theirs["logits"].argmax(-1)
    return same_N


GRAPH = Graph(
    outputs=CLASS_LOGITS,
    card=card_of_classes,
    predictions=labels_with_probabilities,
    equal=same_class,
    timed_inputs=one_pass,
)
