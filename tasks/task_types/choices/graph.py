"""Graphs that return the score of one option; options are asked one by one. Shape letters: N rows, K options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.task_types.choices.options import OPTION_PARTS, options_in
from tasks.task_types.common_graph import one_pass
from tasks.task_types.interfaces import Card, Graph, Printed
from tasks.task_types.stored import STATED
from tasks.task_types.types import OPTION_SCORES


def card_of_options(config: Any) -> Card:
    """Return the output, and the task type by which it is decoded; options have no names."""
    return {"output": "logits", "labels": None, STATED: "choices"}


def options_with_probabilities(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return the chosen option of each row, counted from 0, its probability, and those of all options."""
    found = list[Printed]()
    for scores_K1 in outputs["logits"]:
        odds_K = np.exp(scores_K1[:, 0].astype(np.float64) - scores_K1.max())
        shares_K = odds_K / odds_K.sum()
        best = int(shares_K.argmax())
        found.append({"choice": best, "score": float(shares_K[best]), "scores": [float(one) for one in shares_K]})
    return found


def options_with_texts(outputs: Mapping[str, np.ndarray], card: Card, pairs: Sequence[str]) -> list[Printed]:
    """Return the chosen option of each row with its text."""
    rows = zip(options_with_probabilities(outputs, card), outputs["logits"], pairs, strict=True)
    return [{"option": options_in(pair)[int(scores_K1.argmax())], **one} for one, scores_K1, pair in rows]


def same_choice(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether both choose the same option."""
    both = zip(ours["logits"], theirs["logits"], strict=True)
    return np.asarray([one[:, 0].argmax() == other[:, 0].argmax() for one, other in both], dtype=bool)


GRAPH = Graph(
    outputs=OPTION_SCORES,
    card=card_of_options,
    predictions=options_with_probabilities,
    equal=same_choice,
    timed_inputs=one_pass,
    units=OPTION_PARTS,
    spans=options_with_texts,
    needs_pair=True,
)
