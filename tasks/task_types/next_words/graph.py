"""Graphs that return how many nats each next token of a text takes. Shape letters: N rows, U predicted tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.metrics.of_words import numbers_of_documents
from tasks.task_types.common_graph import one_pass
from tasks.task_types.interfaces import Card, Graph, Printed
from tasks.task_types.next_words.document import JUDGED_TOKENS, LIKELIHOOD, NATS
from tasks.task_types.stored import STATED
from tasks.task_types.types import WORD_NATS

SAME_NATS = 1e-2
"""By how much the mean nats of a token may differ where two models count as equal."""


def card_of_words(config: Any) -> Card:
    """Return the output, and the task type by which it is decoded."""
    return {"output": NATS, "labels": None, STATED: "next-words"}


def printed_likelihoods(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return of each text the logarithm of its probability in nats, the number of its predicted tokens, and its
    perplexity of a token."""
    both = numbers_of_documents(outputs[LIKELIHOOD], 2).tolist()
    return [
        {
            "log_likelihood": -nats,
            "tokens": int(tokens),
            "token_perplexity": math.exp(min(500.0, nats / max(1.0, tokens))),
        }
        for nats, tokens in both
    ]


def equally_likely(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether a token of it is nearly as likely for both."""
    means = [float(np.abs(one - other).mean()) for one, other in zip(ours[NATS], theirs[NATS], strict=True)]
    return np.asarray(means) <= SAME_NATS


GRAPH = Graph(
    outputs=WORD_NATS,
    card=card_of_words,
    predictions=printed_likelihoods,
    equal=equally_likely,
    timed_inputs=one_pass,
    units=JUDGED_TOKENS,
    remembers=True,
)
