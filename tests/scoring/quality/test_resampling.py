"""Weighted metrics are the plain metrics, only faster; the slow way is the oracle."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tasks.metrics.metrics import METRICS
from tasks.scoring.quality.intervals import compare, paired_difference
from tasks.scoring.quality.resampling import resampled

RANDOM = np.random.default_rng(0)
ANSWERS = {
    "two classes": RANDOM.integers(0, 2, (2, 80)),
    "three classes": RANDOM.integers(0, 3, (2, 80)),
    "values": RANDOM.normal(size=(2, 80)),
    "values with ties": RANDOM.integers(0, 4, (2, 80)).astype(float),
    "a constant": np.stack([np.full(80, 0.1), RANDOM.normal(size=80)]),
}
CLASSES = ("accuracy", "f1", "matthews")
OF_DOCUMENTS = ("word_perplexity", "token_perplexity", "bits_per_byte", "masked_perplexity")
NUMERIC = [name for name in METRICS if not name.startswith("entity_") and name not in OF_DOCUMENTS]
"""Metrics of rows with one number; those of entities and documents have the same tests in
``tests/metrics/test_of_entities.py`` and ``tests/metrics/test_of_words.py``."""
CASES = [(name, kind) for name in NUMERIC for kind in ANSWERS if "classes" in kind or name not in CLASSES]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_weight_is_a_repeated_row(name: str, kind: str) -> None:
    predictions, references = ANSWERS[kind]
    weights_RN = RANDOM.multinomial(80, np.full(80, 1 / 80), 50).astype(float)
    slow_R = [
        METRICS[name](predictions.repeat(counts_N), references.repeat(counts_N)) for counts_N in weights_RN.astype(int)
    ]
    assert METRICS[name].weighted(predictions, references, weights_RN) == pytest.approx(slow_R, abs=1e-12)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_resample_in_which_every_row_comes_once_is_the_metric_itself(name: str, kind: str) -> None:
    predictions, references = ANSWERS[kind]
    once, value = (
        METRICS[name].weighted(predictions, references, np.ones((1, 80)))[0],
        METRICS[name](predictions, references),
    )
    assert once == (value if name in CLASSES else pytest.approx(value, abs=1e-12))


def test_a_resample_without_the_third_class_does_not_turn_into_binary_f1() -> None:
    truth = np.asarray([0, 0, 1, 1, 2])
    weights = np.asarray([[2.0, 1, 1, 1, 0]])  # class 2 was not drawn
    predictions = np.asarray([0, 1, 1, 1, 2])
    zero, one = 2 * 2 / (2 + 3), 2 * 2 / (3 + 2)
    assert METRICS["f1"].weighted(predictions, truth, weights)[0] == pytest.approx((zero + one) / 2)


@pytest.mark.parametrize("name", CLASSES)
def test_five_thousand_rows_take_no_time(name: str) -> None:
    answers_MN = RANDOM.integers(0, 2, (4, 5000))
    started = time.perf_counter()
    resampled(METRICS[name], answers_MN[:3], answers_MN[3], 1000, 0)
    assert time.perf_counter() - started < 1


def test_the_interval_has_the_width_of_the_formula() -> None:
    right = np.arange(5000) % 10 != 0
    found = compare(
        METRICS["accuracy"], right[None].astype(int), right.astype(int), np.ones(5000, dtype=int), resamples=4000
    ).score
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * np.sqrt(0.9 * 0.1 / 5000), rel=0.06)


def test_the_same_seed_gives_the_same_interval() -> None:
    first, second = (compare(METRICS["f1"], ANSWERS["two classes"][:1], *ANSWERS["two classes"]) for _ in range(2))
    assert first == second


def test_seeds_that_disagree_widen_the_interval() -> None:
    truth = np.ones(1000, dtype=int)
    steady, shaky = (
        [(RANDOM.random(1000) < share).astype(int) for share in shares] for shares in ((0.8,) * 3, (0.7, 0.8, 0.9))
    )
    widths = [compare(METRICS["accuracy"], np.stack(each), truth, truth).score for each in (steady, shaky)]
    assert widths[1].high - widths[1].low > 2 * (widths[0].high - widths[0].low)


def test_a_difference_has_a_side() -> None:
    truth = np.ones((1, 500), dtype=int)
    better, worse = truth.copy(), truth.copy()
    worse[0, :50] = 0
    assert paired_difference(METRICS["accuracy"], better, worse, truth[0]).value == pytest.approx(0.1)


def test_of_an_error_the_teachers_over_ours_is_retained() -> None:
    """Half the teacher's error would read as 50 % retained, and was refused before: a language model that is worse
    must retain less than all, at any scale of its errors."""
    errors, truth = RANDOM.normal(size=80), np.zeros(80)
    for scale in (1.0, 1e-4):
        found = compare(METRICS["mse"], 2**0.5 * scale * errors[None], scale * errors, truth).retained
        assert found is not None and (found.low, found.value, found.high) == pytest.approx([0.5] * 3)
    wide = compare(METRICS["mse"], RANDOM.normal(size=(2, 80)) * 1.5, errors, truth).retained
    assert wide is not None and wide.low < wide.value < 1 and wide.value < wide.high
    for ours, theirs in ((errors, truth), (truth, errors), (truth, truth)):
        assert compare(METRICS["mse"], ours[None], theirs, truth).retained is None, "one of them has no error"


def test_a_teacher_near_zero_gives_no_share() -> None:
    assert (
        compare(
            METRICS["matthews"], ANSWERS["two classes"][:1], np.zeros(80, dtype=int), ANSWERS["two classes"][1]
        ).retained
        is None
    )


def test_rows_that_say_the_same_count_once_in_an_interval() -> None:
    """Of 60 sentences in four phrases each, all phrases right or all wrong: drawn row by row, an interval would be half
    as wide as it is."""
    groups, right = np.repeat(np.arange(60), 4), np.repeat(RANDOM.integers(0, 2, 60), 4)
    truth = np.ones(240, dtype=int)

    def width(groups_N: np.ndarray | None) -> float:
        found = compare(METRICS["accuracy"], right[None], truth, truth, resamples=2000, groups_N=groups_N).score
        return found.high - found.low

    once = compare(METRICS["accuracy"], right[None, ::4], truth[::4], truth[::4], resamples=2000).score
    assert width(groups) == pytest.approx(2 * width(None), rel=0.15) == pytest.approx(once.high - once.low, rel=0.15)
    assert width(np.arange(240)) == width(np.zeros(240, dtype=int)) == width(None), (
        "groups of one row each, or one of all rows, change nothing"
    )


def test_intervals_over_groups_hold_as_often_as_they_say() -> None:
    held = {"rows": 0, "groups": 0}
    truth, groups = np.ones(200, dtype=int), np.repeat(np.arange(50), 4)
    for seed in range(200):
        right = np.repeat(np.random.default_rng(seed).random(50) < 0.8, 4).astype(int)
        for way, groups_N in (("rows", None), ("groups", groups)):
            found = compare(METRICS["accuracy"], right[None], truth, truth, resamples=200, groups_N=groups_N).score
            held[way] += found.low <= 0.8 <= found.high
    assert held["groups"] >= 180 and held["rows"] < 160, held


@pytest.mark.parametrize("name", ["f1", "pearson", "spearman"])
def test_drawing_groups_is_repeating_all_rows_of_each(name: str) -> None:
    predictions, references = ANSWERS["two classes" if name == "f1" else "values with ties"]
    groups = RANDOM.integers(0, 20, 80)
    names, group_N = np.unique(groups, return_inverse=True)
    times_RG = np.random.default_rng(3).multinomial(len(names), np.full(len(names), 1 / len(names)), 40)
    slow_R = [
        METRICS[name](predictions.repeat(times_G[group_N]), references.repeat(times_G[group_N])) for times_G in times_RG
    ]
    assert resampled(METRICS[name], predictions[None], references, 40, 3, groups)[0] == pytest.approx(slow_R, abs=1e-12)
