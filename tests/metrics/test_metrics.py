"""Sums give the same values as the metrics' formulas on whole columns, at every precision that callers have."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.metrics.definition import SumMetric
from tasks.metrics.metrics import METRICS, is_error
from tasks.metrics.of_values import SPEARMAN, ranks

RANDOM = np.random.default_rng(5)
OF_DOCUMENTS = ("word_perplexity", "token_perplexity", "bits_per_byte", "masked_perplexity")
SUMS = {name: metric for name, metric in METRICS.items() if isinstance(metric, SumMetric)}


def answers(name: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    if name == "mse":
        return RANDOM.normal(size=rows), RANDOM.normal(size=rows)
    if name in OF_DOCUMENTS:
        return documents(2, rows), documents(3, rows)
    return RANDOM.integers(0, 12, rows), RANDOM.integers(0, 12, rows)


def documents(count: int, rows: int) -> np.ndarray:
    """Return numbers of documents with spaces between them."""
    return np.asarray([" ".join(map(str, one)) for one in RANDOM.integers(1, 50, (rows, count))])


@pytest.mark.parametrize("name", sorted(SUMS))
def test_parts_are_numbers_of_single_rows(name: str) -> None:
    """Rows may come in any order, and parts of one row do not depend on another, but for which classes there are."""
    predictions, truth = answers(name, 200)
    metric, order = SUMS[name], RANDOM.permutation(200)
    assert np.array_equal(metric.parts(predictions, truth)[order], metric.parts(predictions[order], truth[order]))
    assert len(metric.parts(predictions, truth)) == 200


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_squared_error_is_a_mean_at_the_precision_of_its_values(dtype: type) -> None:
    """Checkpoints are selected on float32 values, and the score of an earlier release is repeated to the last bit."""
    predictions, truth = (values.astype(dtype) for values in answers("mse", 999))
    assert METRICS["mse"](predictions, truth) == float(np.mean((predictions - truth) ** 2))


def test_counts_of_many_rows_do_not_overflow() -> None:
    """Squares of squares of 100,000 rows are beyond 64-bit integers."""
    truth = np.arange(100_000) % 2
    assert METRICS["matthews"](truth, truth) == 1.0


def test_what_is_no_number_has_no_rank() -> None:
    values = np.asarray([1.0, np.nan, 2.0])
    assert np.isnan(ranks(values)).all() and np.isnan(SPEARMAN(values, np.arange(3.0)))


def test_ranks_are_those_of_scipy() -> None:
    from scipy.stats import rankdata

    values = RANDOM.integers(0, 9, 100) / 3
    assert np.array_equal(ranks(values), rankdata(values))


def test_squared_errors_and_perplexities_are_errors_and_unknown_names_are_not() -> None:
    assert {name for name in METRICS if is_error(name)} == {"mse", *OF_DOCUMENTS} and not is_error("bleu")
