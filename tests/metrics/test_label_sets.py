"""Metrics of sets of labels equal scikit-learn's, on all rows and on resampled ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from tasks.metrics.metrics import METRICS
from tasks.metrics.of_label_sets import MOST_LABELS, as_sets, labels_in, members
from tasks.scoring.quality.resampling import resampled

RANDOM = np.random.default_rng(11)
PEERS = {
    "micro_f1": lambda found, true: f1_score(true, found, average="micro", zero_division=0),
    "label_macro_f1": lambda found, true: f1_score(true, found, average="macro", zero_division=0),
    "subset_accuracy": lambda found, true: accuracy_score(true, found),
}


def drawn(rows: int, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted and true members; each label is true somewhere."""
    found_NC, true_NC = (RANDOM.random((rows, labels)) < 0.3 for _ in range(2))
    true_NC[0] = True
    return found_NC, true_NC


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("labels", [2, 5, MOST_LABELS])
def test_they_equal_scikit_learn(name: str, labels: int) -> None:
    found_NC, true_NC = drawn(300, labels)
    for one_NC in (found_NC, true_NC, np.zeros_like(found_NC)):
        ours = METRICS[name](as_sets(one_NC).astype(np.float64), as_sets(true_NC))
        assert ours == pytest.approx(PEERS[name](one_NC, true_NC), abs=1e-12)


@pytest.mark.parametrize("name", PEERS)
def test_a_resample_is_the_metric_of_the_drawn_rows(name: str) -> None:
    found_NC, true_NC = drawn(40, 3)
    found_N, true_N = as_sets(found_NC), as_sets(true_NC)
    rows = RANDOM.integers(0, 40, 40)
    rows[0] = 0  # the row with all labels, so that none is missing
    weights_RU = np.bincount(rows, minlength=40)[None].astype(float)
    weighted = METRICS[name].weighted(found_N, true_N, weights_RU)[0]
    assert weighted == pytest.approx(PEERS[name](found_NC[rows], true_NC[rows]), abs=1e-12)
    every_MR = resampled(METRICS[name], np.stack([found_N.astype(float), true_N.astype(float)]), true_N, 50, 0)
    assert every_MR[1] == pytest.approx(1) and every_MR[0].std() > 0


def test_a_set_is_a_number_that_a_float_holds_exactly() -> None:
    """Predictions are stored as floats: one label more would be lost in them."""
    everything = np.ones((1, MOST_LABELS), bool)
    number = as_sets(everything)
    assert int(float(number[0])) == number[0] == 2**MOST_LABELS - 1
    assert members(number.astype(float), np.arange(MOST_LABELS)).all() and len(labels_in(number)) == MOST_LABELS


def test_no_label_at_all_scores_nothing_and_breaks_nothing() -> None:
    nothing = np.zeros(5)
    assert METRICS["micro_f1"](nothing, nothing) == METRICS["label_macro_f1"](nothing, nothing) == 0
    assert METRICS["subset_accuracy"](nothing, nothing) == 1
