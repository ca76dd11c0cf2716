"""Graphs that return the log-odds of each label.

The thresholds of a finished model are in the bias of its head, so that a label applies where its output is above 0: to
users of the plain folder, of the graph, and here. A card states them, and a score is the label's probability before
they were moved. Shape letters: N rows, C labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tasks.task_types.common_graph import one_pass
from tasks.task_types.interfaces import Card, Graph, Printed
from tasks.task_types.multi_label.thresholds import log_odds
from tasks.task_types.stored import STATED
from tasks.task_types.types import LABEL_LOGITS

SEPARATOR = "|"
"""Between two labels of a prediction; tables of rows are read with it, too."""


def card_of_labels(config: Any) -> Card:
    """Return the output, the names of the labels, the task type, and the threshold of each label."""
    labels = [config.id2label[number] for number in range(config.num_labels)]
    return {"output": "logits", "labels": labels, STATED: "multi-label", "thresholds": thresholds_of(config, labels)}


def thresholds_of(config: Any, labels: Sequence[str]) -> list[float]:
    """Return the threshold of each label; 0.5 of a model whose thresholds were not tuned."""
    return [float(one) for one in getattr(config, "limbeck_thresholds", None) or [0.5] * len(labels)]


def labels_with_scores(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return the labels of each row as one text, and the probability of every label."""
    logits_NC, labels = outputs["logits"].astype(np.float64), cast(list[str], card["labels"])
    moved_NC = logits_NC + log_odds(np.asarray(cast(list[float], card["thresholds"])))
    shares_NC = 1 / (1 + np.exp(-moved_NC))
    return [
        {
            "labels": SEPARATOR.join(name for name, logit in zip(labels, row, strict=True) if logit > 0),
            **{f"score_{name}": float(share) for name, share in zip(labels, shares, strict=True)},
        }
        for row, shares in zip(logits_NC, shares_NC, strict=True)
    ]


def same_set(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether both predict the same labels."""
    same_N: np.ndarray = ((ours["logits"] > 0) == (theirs["logits"] > 0)).all(-1)
    return same_N


GRAPH = Graph(
    outputs=LABEL_LOGITS,
    card=card_of_labels,
    predictions=labels_with_scores,
    equal=same_set,
    timed_inputs=one_pass,
)
