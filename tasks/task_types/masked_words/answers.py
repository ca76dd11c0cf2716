"""Likelihoods of the hidden tokens of documents, their perplexity, and documents of which two models think otherwise.
Shape letter: N documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tasks.metrics.of_words import MASKED_PERPLEXITY, numbers_of_documents
from tasks.task_types.interfaces import Floor
from tasks.task_types.next_words.answers import ANSWERS as OF_NEXT_WORDS
from tasks.task_types.next_words.answers import interval_of_mean, least_nats_saved, nats_of_token


def guess_hidden_by_frequency(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return by how many nats a hidden token is less surprising than a word where each is as likely as it is frequent;
    and 0, which those frequencies have."""
    nats, tokens = numbers_of_documents(predictions_N, 2).sum(0)
    words, _, guessed = numbers_of_documents(labels_N, 3).sum(0)
    return {"majority": 0.0, "selection_nats_saved": float(guessed / max(1.0, words) - nats / max(1.0, tokens))}


def analyse_hidden(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return the perplexity of a hidden token, of all documents and in the least and the most surprising tenth of them;
    0 without documents."""
    names, said_N = ("masked_perplexity", "easy_masked_perplexity", "hard_masked_perplexity"), model["answer"]
    if not len(labels_N):
        return dict.fromkeys(names, 0.0)
    order, tenth = np.argsort(nats_of_token(said_N), kind="stable"), max(1, len(labels_N) // 10)
    parts = (order, order[:tenth], order[-tenth:])
    return {name: MASKED_PERPLEXITY(said_N[some], labels_N[some]) for name, some in zip(names, parts, strict=True)}


ANSWERS = replace(
    OF_NEXT_WORDS,
    metrics={"masked_perplexity": MASKED_PERPLEXITY},
    guess=guess_hidden_by_frequency,
    floor=Floor(
        fact="selection_nats_saved",
        least=least_nats_saved,
        description="nats of a hidden token below those of a word by its frequency",
        interval=interval_of_mean,
    ),
    alone=analyse_hidden,
)
