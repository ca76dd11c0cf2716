"""Metrics of language models: how likely a model finds the words of held-out documents (Jelinek et al. 1977,
"Perplexity", JASA 62). Perplexities of a token are comparable between models with one tokenizer alone; those of a
word, and bits of a byte, between all models.

A document stands here as numbers with spaces between them: a prediction is its nats and the number of its predicted
tokens, a label the number of its words and line ends, the number of its bytes, and the nats of a model that knows how
often each word occurs. Words and line ends are counted as in WikiText's word-level figures (Merity et al. 2016,
arXiv:1609.07843). Shape letter: N documents.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tasks.metrics.definition import SumMetric

MOST_NATS = 500.0
"""A mean above this counts as this: its perplexity would be no number any more."""


def numbers_of_documents(values_N: np.ndarray, count: int) -> np.ndarray:
    """Return the numbers of predictions or labels [N, count]."""
    return np.asarray([[float(one) for one in str(value).split()] for value in values_N]).reshape(-1, count)


def nats_and_counts(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return nats, tokens, words and bytes of each document [N, 4]."""
    return np.hstack([numbers_of_documents(predictions_N, 2), numbers_of_documents(truth_N, 3)[:, :2]])


def nats_per(sums: np.ndarray, column: int) -> np.ndarray:
    """Return nats for each counted thing, from sums of parts."""
    return np.asarray(np.minimum(sums[..., 0] / np.maximum(sums[..., column], 1), MOST_NATS))


def perplexity_of_token(sums: np.ndarray, rows: Any) -> np.ndarray:
    """Return the perplexity of a token."""
    return np.asarray(np.exp(nats_per(sums, 1)))


def perplexity_of_word(sums: np.ndarray, rows: Any) -> np.ndarray:
    """Return the perplexity of a word."""
    return np.asarray(np.exp(nats_per(sums, 2)))


def bits_of_byte(sums: np.ndarray, rows: Any) -> np.ndarray:
    """Return the bits that a byte takes."""
    return np.asarray(nats_per(sums, 3) / math.log(2))


WORD_PERPLEXITY = SumMetric(
    "Perplexity of a word or line end, of all models alike.", nats_and_counts, perplexity_of_word, True
)
TOKEN_PERPLEXITY = SumMetric(
    "Perplexity of a token: comparable between models with one tokenizer.", nats_and_counts, perplexity_of_token, True
)
BITS_PER_BYTE = SumMetric("Bits that a byte of a text takes, of all models alike.", nats_and_counts, bits_of_byte, True)
MASKED_PERPLEXITY = SumMetric(
    "Perplexity of a hidden token: comparable between models with one tokenizer.",
    nats_and_counts,
    perplexity_of_token,
    True,
)
