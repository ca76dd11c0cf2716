"""Graphs that return the score of one text for a query; texts are asked one by one. Shape letters: N rows, K texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.task_types.common_graph import one_pass
from tasks.task_types.interfaces import Card, Graph, Printed
from tasks.task_types.ranking.candidates import CANDIDATES
from tasks.task_types.stored import STATED
from tasks.task_types.types import RELEVANCE_SCORES


def card_of_ranking(config: Any) -> Card:
    """Return the output, and the task type by which it is decoded; texts have no names."""
    return {"output": "logits", "labels": None, STATED: "ranking"}


def order_with_scores(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return the places of each row's texts, from 0, the best first, and the scores in the order of the row."""
    found = list[Printed]()
    for scores_K1 in outputs["logits"]:
        scores_K = scores_K1[:, 0].astype(np.float64)
        found.append({"order": np.argsort(-scores_K, kind="stable").tolist(), "scores": scores_K.tolist()})
    return found


def same_order(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether both put the same text first."""
    both = zip(ours["logits"], theirs["logits"], strict=True)
    return np.asarray([one[:, 0].argmax() == other[:, 0].argmax() for one, other in both], dtype=bool)


GRAPH = Graph(
    outputs=RELEVANCE_SCORES,
    card=card_of_ranking,
    predictions=order_with_scores,
    equal=same_order,
    timed_inputs=one_pass,
    units=CANDIDATES,
    needs_pair=True,
)
