"""Graphs and predictions of models that read and write. Shape letter: N rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.task_types.common_graph import one_pass
from tasks.task_types.interfaces import Card, Graph, Printed
from tasks.task_types.seq2seq.target import WRITTEN_OUTPUT, written_texts
from tasks.task_types.stored import STATED
from tasks.task_types.types import WRITTEN_TEXT


def card_of_texts(config: Any) -> Card:
    """Return the output, and the task type by which it is decoded."""
    return {"output": WRITTEN_OUTPUT, "labels": None, STATED: "seq2seq"}


def printed_texts(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return the text that was written of each source."""
    return [{"written": str(text)} for text in written_texts(outputs)]


def equal_texts(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether the texts are the same."""
    return np.asarray(written_texts(ours) == written_texts(theirs))


GRAPH = Graph(
    outputs=WRITTEN_TEXT,
    card=card_of_texts,
    predictions=printed_texts,
    equal=equal_texts,
    timed_inputs=one_pass,
)
