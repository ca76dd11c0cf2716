"""The words "better" and "worse"."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tasks.scoring.intervals import over_few_seeds, weighed_difference
from tasks.scoring.metrics import accuracy, mse
from tasks.scoring.verdicts import INSIDE, holm, verdicts


def found(p: float, value: float = 0.02, low: float = 0.01, high: float = 0.03, *, lower: bool = False) -> dict[str, Any]:
    return {"lower_is_better": lower, "seeds": [3, 3], "splits": {"holdout": {"value": value, "low": low, "high": high, "p": p}}}


def words(**measured: dict[str, Any]) -> dict[str, str]:
    said = verdicts({(name, "plain"): one for name, one in measured.items()}, 0.95)
    return {name: against["plain"]["holdout"]["verdict"] for name, against in said.items()}


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == []


def test_one_of_many_that_looks_better_by_chance_is_not_called_so() -> None:
    assert words(alone=found(0.03)) == {"alone": "better"}
    assert set(words(**{f"m{number}": found(0.03) for number in range(4)}).values()) == {INSIDE}
    assert words(strong=found(0.001), weak=found(0.04), none=found(0.6, 0.0, -0.01, 0.01)) == {"strong": "better", "weak": INSIDE, "none": INSIDE}


def test_the_interval_must_exclude_zero_too() -> None:
    assert words(odd=found(0.001, low=-0.001)) == {"odd": INSIDE}


def test_worse_and_errors_that_should_be_small() -> None:
    assert words(loser=found(0.001, -0.02, -0.03, -0.01)) == {"loser": "worse"}
    assert words(loser=found(0.001, lower=True)) == {"loser": "worse"}
    assert words(winner=found(0.001, -0.02, -0.03, -0.01, lower=True)) == {"winner": "better"}


def test_nothing_to_compare_says_nothing() -> None:
    assert verdicts({}, 0.95) == {}


def test_splits_are_tables_of_their_own() -> None:
    both = found(0.03)
    both["splits"]["validation"] = {"value": 0.0, "low": -0.01, "high": 0.01, "p": 0.9}
    said = verdicts({("a", "plain"): both, ("b", "plain"): found(0.9)}, 0.95)
    assert said["a"]["plain"]["holdout"]["p"] == pytest.approx(0.06) and said["a"]["plain"]["validation"]["p"] == 0.9
    assert set(said["b"]["plain"]) == {"holdout"}


def test_equal_models_are_never_told_apart() -> None:
    truth_N = np.arange(200) % 2
    same_SN = np.stack([truth_N, 1 - truth_N])
    apart = weighed_difference(accuracy, same_SN[:1], same_SN[:1], truth_N)
    assert apart.interval.value == apart.interval.low == apart.interval.high == 0 and apart.p == 1


def test_a_p_value_falls_with_the_gap_and_never_to_zero() -> None:
    truth_N = np.zeros(400)
    wrong = lambda count: np.where(np.arange(400) < count, 1.0, 0.0)[None]  # noqa: E731 - short
    near, far = (weighed_difference(accuracy, wrong(40), wrong(count), truth_N, resamples=500) for count in (44, 120))
    assert near.p > far.p == pytest.approx(2 / 501) and far.interval.value == pytest.approx(0.2)
    assert weighed_difference(mse, wrong(40), wrong(120), truth_N).interval.value == pytest.approx(-0.2)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_few_seeds_spread_as_far_as_means_of_so_many_do(seeds: int) -> None:
    """Drawing S of S seeds would show (S - 1) / S of the variance."""
    values_S = np.random.default_rng(seeds).normal(size=seeds)
    means_R = over_few_seeds(np.repeat(values_S[:, None], 40_000, 1), 0)
    assert means_R.var() == pytest.approx(values_S.var(ddof=1) / seeds, rel=0.05)


def test_one_lucky_seed_among_three_is_inside_the_noise() -> None:
    """On endless rows only the seeds make noise: two that are level and one that is far ahead prove nothing."""
    truth_N = np.zeros(20_000)
    scored = lambda *shares: np.stack([np.arange(20_000) >= share * 20_000 for share in shares]).astype(float)  # noqa: E731 - short
    lucky = weighed_difference(accuracy, scored(0.90, 0.90, 0.96), scored(0.90, 0.901, 0.90), truth_N, resamples=2000)
    steady = weighed_difference(accuracy, scored(0.92, 0.921, 0.922), scored(0.90, 0.901, 0.90), truth_N, resamples=2000)
    assert lucky.interval.low <= 0 and lucky.p > 0.05
    assert steady.interval.low > 0 and steady.p < 0.01
