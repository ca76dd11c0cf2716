"""Graphs that return how many nats each token of a text takes; of a hidden token, a negative number in their inputs,
seen from those around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tasks.task_types.interfaces import Card, Printed
from tasks.task_types.masked_words.hidden import HIDDEN_TOKENS
from tasks.task_types.next_words.document import NATS
from tasks.task_types.next_words.graph import GRAPH as OF_NEXT_WORDS
from tasks.task_types.next_words.graph import printed_likelihoods
from tasks.task_types.stored import STATED


def card_of_hidden_words(config: Any) -> Card:
    """Return the output, and the task type by which it is decoded."""
    return {"output": NATS, "labels": None, STATED: "masked-words"}


def printed_hidden(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return of each text the logarithm of the probability of its hidden tokens in nats, their number, and their
    perplexity."""
    return [
        {
            "log_likelihood": one["log_likelihood"],
            "hidden_tokens": one["tokens"],
            "masked_perplexity": one["token_perplexity"],
        }
        for one in printed_likelihoods(outputs, card)
    ]


GRAPH = replace(
    OF_NEXT_WORDS, card=card_of_hidden_words, predictions=printed_hidden, units=HIDDEN_TOKENS, remembers=False
)
