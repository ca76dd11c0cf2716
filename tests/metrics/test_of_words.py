"""Perplexities and bits of a byte, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasks.metrics.of_words import BITS_PER_BYTE, TOKEN_PERPLEXITY, WORD_PERPLEXITY

FOUND, TRUE = np.asarray(["12.5 6", "3 2"]), np.asarray(["5 30 20.5", "2 9 4.5"])


def test_nats_are_summed_before_they_are_divided() -> None:
    """15.5 nats of 8 tokens, 7 words and line ends, and 39 bytes."""
    assert WORD_PERPLEXITY(FOUND, TRUE) == pytest.approx(math.exp(15.5 / 7), rel=1e-12)
    assert TOKEN_PERPLEXITY(FOUND, TRUE) == pytest.approx(math.exp(15.5 / 8), rel=1e-12)
    assert BITS_PER_BYTE(FOUND, TRUE) == pytest.approx(15.5 / 39 / math.log(2), rel=1e-12)


def test_resamples_are_of_documents() -> None:
    twice = WORD_PERPLEXITY.weighted(FOUND, TRUE, np.asarray([[2.0, 0.0], [1.0, 1.0]]))
    assert twice == pytest.approx([math.exp(12.5 / 5), math.exp(15.5 / 7)])


def test_a_model_that_diverged_has_a_number() -> None:
    assert np.isfinite(TOKEN_PERPLEXITY(np.asarray(["1e9 2"]), np.asarray(["1 1 1"])))
