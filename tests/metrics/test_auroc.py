"""The area under the ROC curve: against scikit-learn, and its resamples against rows that are really repeated."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics

from tasks.metrics.of_scores import AUROC

DRAW = np.random.default_rng(0)
TRUTH = DRAW.integers(0, 2, 300)


@pytest.mark.parametrize(
    "scores", [DRAW.normal(size=300) + TRUTH, np.round(DRAW.normal(size=300) + TRUTH)], ids=["", "ties"]
)
def test_it_is_scikit_learns_on_rows_and_on_resamples(scores: np.ndarray) -> None:
    assert AUROC(scores, TRUTH) == pytest.approx(sklearn.metrics.roc_auc_score(TRUTH, scores))
    weights_RU = DRAW.multinomial(300, np.full(300, 1 / 300), 20)
    expected = [sklearn.metrics.roc_auc_score(TRUTH.repeat(row), scores.repeat(row)) for row in weights_RU]
    assert AUROC.weighted(scores, TRUTH, weights_RU.astype(float)) == pytest.approx(expected)


def test_without_one_of_the_classes_and_with_equal_scores_it_is_that_of_chance() -> None:
    assert AUROC(np.arange(9.0), np.ones(9, dtype=int)) == AUROC(np.zeros(9), TRUTH[:9]) == 0.5
