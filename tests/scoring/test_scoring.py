"""The scales: against libraries that everyone trusts, and against published figures."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from tasks.metrics.metrics import METRICS
from tasks.metrics.of_classes import ACCURACY
from tasks.scoring.quality.intervals import compare, paired_difference
from tasks.scoring.speed.flops import forward_flops

RANDOM = np.random.default_rng(0)
TWO, THREE = (RANDOM.integers(0, classes, (2, 200)) for classes in (2, 3))
REAL = RANDOM.normal(size=(2, 200))


@pytest.mark.parametrize(
    ("name", "values", "trusted"),
    [
        ("accuracy", TWO, lambda p, r: sklearn.metrics.accuracy_score(r, p)),
        ("f1", TWO, lambda p, r: sklearn.metrics.f1_score(r, p)),
        ("f1", THREE, lambda p, r: sklearn.metrics.f1_score(r, p, average="macro")),
        ("matthews", TWO, lambda p, r: sklearn.metrics.matthews_corrcoef(r, p)),
        ("matthews", THREE, lambda p, r: sklearn.metrics.matthews_corrcoef(r, p)),
        ("pearson", REAL, lambda p, r: scipy.stats.pearsonr(p, r)[0]),
        ("spearman", REAL, lambda p, r: scipy.stats.spearmanr(p, r)[0]),
        ("spearman", THREE, lambda p, r: scipy.stats.spearmanr(p, r)[0]),
        ("mse", REAL, lambda p, r: sklearn.metrics.mean_squared_error(r, p)),
    ],
)
def test_metrics_agree_with_libraries(name: str, values: np.ndarray, trusted) -> None:
    assert METRICS[name](*values) == pytest.approx(trusted(*values))


@pytest.mark.parametrize("name", ["f1", "matthews", "pearson", "spearman", "pearson_spearman"])
def test_constant_answers_are_worth_nothing_and_break_nothing(name: str) -> None:
    assert METRICS[name](np.zeros(10, dtype=int), np.asarray([0, 1] * 5)) == 0.0


def test_bert_base_has_the_flops_of_the_literature() -> None:
    base = {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072}
    assert forward_flops(base, 128) == pytest.approx(22.4e9, rel=0.01)


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(60):
        right = np.random.default_rng(seed).random(300) < 0.8
        found = compare(
            ACCURACY, right[None].astype(int), right.astype(int), np.ones(300, dtype=int), resamples=300, seed=seed
        ).score
        covered += found.low <= 0.8 <= found.high
    assert 50 <= covered <= 60


def test_a_paired_difference_is_tighter_than_two_intervals() -> None:
    truth = np.ones(2000, dtype=int)
    first = (np.random.default_rng(1).random(2000) < 0.9).astype(int)
    second = first.copy()
    second[:40] = 0
    found = paired_difference(ACCURACY, first[None], second[None], truth)
    assert found.low > 0 and found.high - found.low < 0.02


def test_a_model_compared_with_itself_retains_everything() -> None:
    found = compare(ACCURACY, TWO[:1], TWO[0], TWO[1])
    assert found.retained is not None and found.retained.value == found.retained.low == found.retained.high == 1.0
    assert found.difference.value == 0.0
