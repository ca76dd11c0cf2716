"""Timing of calls in turn, until their medians are known precisely enough or the time limit is reached.

Disturbances of a machine last longer than one call, so successive calls are not independent samples. Their times are
divided into consecutive blocks, and the interval of the median is computed from the ranks of the blocks' medians,
without assumptions about the distribution of the noise. Source: Schmeiser 1982, "Batch size effects in the analysis of
simulation output", Operations Research 30(3): 10 to 30 batches are enough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCKS = 20
"""Of 20 ordered medians, the 6th and the 15th enclose the true one with a probability of 95.9 %."""
FEWEST = 6  # the least number of calls of which the shortest and the longest enclose the median with 95 %
NEAR = 0.05
"""Largest distance of an interval's ends from the median, as a share of it, at which the median counts as known."""
LEAST_SHARE = 0.1
"""The share of the time limit that timing always takes: a disturbance as long as all calls together would pass for
their normal speed."""
# factor on the number of calls between two checks of the intervals; frequent checks would find a narrow one by chance
GROWTH = 1.3


@dataclass(frozen=True)
class Median:
    """A median with its interval of about 95 %."""

    value: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """The largest distance of the interval's ends from the median, as a share of it."""
        return max(self.high - self.value, self.value - self.low) / self.value

    @property
    def known(self) -> bool:
        """Whether the interval is narrow enough for decisions."""
        return self.spread <= NEAR


def median_of(times: Sequence[float], value: float | None = None) -> Median:
    """Return the median of successive times, with its interval; ``value`` replaces the median if it was computed in
    another way."""
    middles = sorted(float(np.median(block)) for block in np.array_split(np.asarray(times), min(BLOCKS, len(times))))
    outside = outside_of(len(middles))
    middle = float(np.median(times)) if value is None else value
    return Median(middle, min(middle, middles[outside]), max(middle, middles[-1 - outside]))


def outside_of(draws: int) -> int:
    """Return the number of ordered draws outside of the 95 % interval of their median, at each end; 0 for fewer than
    6 draws."""
    below, outside = 0.5**draws, 0
    while below + math.comb(draws, outside + 1) * 0.5**draws <= 0.025:
        outside += 1
        below += math.comb(draws, outside) * 0.5**draws
    return outside


def quotient_of(theirs: Sequence[float], ours: Sequence[float]) -> Median:
    """Return the quotient of the medians of two calls timed in turn, the first divided by the second, with its
    interval."""
    return median_of(np.divide(theirs, ours).tolist(), float(np.median(theirs) / np.median(ours)))


def time_in_turn(
    calls: Mapping[str, Callable[[], Any]],
    *,
    repeats: int,
    warmup: int,
    seconds: float,
    clock: Callable[[], float] | None = None,
) -> dict[str, list[float]]:
    """Return the milliseconds of calls in turn (A, B, A, B …): at least ``repeats`` of each, and more until all medians
    are known, those of the quotients to the first call, too.

    After ``seconds`` of timed calls no new turn begins, except for the repeats. ``clock`` times each call, in seconds;
    by default it is the wall clock.
    """
    clock = clock or time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(warmup):
        for call in calls.values():
            call()
    started, turn = time.perf_counter(), 0
    fewest = wanted = max(repeats, FEWEST)
    while True:
        turn += 1
        for name, call in calls.items():
            begun = clock()
            call()
            times[name].append(1000 * (clock() - begun))
        spent = time.perf_counter() - started
        if turn < fewest:
            continue
        if spent >= seconds:
            return times
        if turn >= wanted and spent >= LEAST_SHARE * seconds:
            if all_known(times):
                return times
            wanted = math.ceil(GROWTH * turn)


def all_known(times: Mapping[str, Sequence[float]]) -> bool:
    """Return whether every median and every quotient to the first is known."""
    first, *others = times.values()
    return all(median_of(one).known for one in times.values()) and all(quotient_of(first, one).known for one in others)
