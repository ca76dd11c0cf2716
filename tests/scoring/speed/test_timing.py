"""How long calls are timed, and how sure their medians then are: on made-up times and a clock of our own."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.scoring.speed import timing
from tasks.scoring.speed.timing import LEAST_SHARE, NEAR, Median, median_of, outside_of, quotient_of, time_in_turn


def test_ranks_of_an_interval_are_those_of_the_tables() -> None:
    """Conover, Practical Nonparametric Statistics: of 20 draws the 6th to the 15th, of 10 the 2nd to the 9th, of 6 the
    least to the greatest."""
    assert [outside_of(draws) for draws in (5, 6, 9, 10, 15, 20)] == [0, 0, 1, 1, 3, 5]


def test_the_interval_of_disturbed_times_holds_the_true_median_as_often_as_it_says() -> None:
    """Half of the time is spent in spells of 30 calls at another pace: calls by themselves would promise ten times too
    much."""
    generator, held, alone = np.random.default_rng(0), 0, 0
    for _ in range(300):
        spells = np.repeat(generator.choice([1.0, 1.5], size=40), 30)
        times = spells * generator.lognormal(0.0, 0.2, size=1200)
        true = 1.5**0.5  # the median of this mixture, by symmetry in logarithms
        found = median_of(times.tolist())
        held += found.low <= true <= found.high
        ordered = np.sort(times)
        alone += ordered[566] <= true <= ordered[633]
    assert held >= 0.9 * 300 > alone


class Clock:
    """A clock that calls push on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 0.0, 0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def call(self, *seconds: float) -> None:
        self.now += seconds[self.calls % len(seconds)]
        self.calls += 1


def test_what_is_steady_ends_with_the_least_and_what_is_not_goes_on_to_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    even = time_in_turn(
        {"a": lambda: clock.call(0.01), "b": lambda: clock.call(0.03)}, repeats=30, warmup=2, seconds=10.0
    )
    assert (
        len(even["a"]) == len(even["b"]) == 30
        and even["a"] == pytest.approx([10.0] * 30)
        and even["b"] == pytest.approx([30.0] * 30)
    )
    generator = np.random.default_rng(0)
    wild = time_in_turn(
        {"a": lambda: clock.call(float(generator.choice([0.01, 0.02]))), "b": lambda: clock.call(0.03)},
        repeats=30,
        warmup=0,
        seconds=3.0,
    )
    assert 3000 <= sum(wild["a"]) + sum(wild["b"]) <= 3060 and not median_of(wild["a"]).known


def test_short_calls_are_timed_for_a_while_and_long_ones_as_often_as_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    short = time_in_turn({"a": lambda: clock.call(0.001)}, repeats=5, warmup=0, seconds=10.0)
    assert 999 <= sum(short["a"]) < 2000 and LEAST_SHARE == 0.1
    long = time_in_turn({"a": lambda: clock.call(20.0)}, repeats=7, warmup=0, seconds=10.0)
    assert len(long["a"]) == 7


def test_a_quotient_of_two_that_are_disturbed_together_is_known_where_they_are_not() -> None:
    pace = np.repeat(np.random.default_rng(0).uniform(1, 2, size=20), 30)
    theirs, ours = (4.0 * pace).tolist(), pace.tolist()
    assert not median_of(ours).known and quotient_of(theirs, ours) == Median(4.0, 4.0, 4.0)
    assert Median(1.0, 0.99 - NEAR / 2, 1.0).known and not Median(1.0, 0.99 - NEAR, 1.0).known
