"""Calls timed in turn, until their medians are known or the time for it is over.

A machine is disturbed for longer than one call takes, so calls that follow one another are no independent draws. Their
times are cut into blocks in the order of time, and the interval of the median is that of the blocks' medians, by rank:
nothing is assumed about the shape of the noise. Source: Schmeiser 1982, "Batch size effects in the analysis of
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
"""Of 20 medians the 6th and the 15th hold the true one with 95.9 %."""
FEWEST = 6  # calls of which the shortest and the longest hold the median with 95 %
NEAR = 0.05
"""How far both ends of an interval may lie from their median, as a share of it, where that is called known."""
LEAST_SHARE = 0.1
"""Of the time that timing may take, the part that it always takes: what lasts as long as all calls together would pass
for their own pace."""
# of the number of calls from one look at the intervals to the next; many looks would find a narrow one by chance
GROWTH = 1.3


@dataclass(frozen=True)
class Median:
    """A median with its interval of about 95 %."""

    value: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """How far the interval reaches from the median, as a share of it."""
        return max(self.high - self.value, self.value - self.low) / self.value

    @property
    def known(self) -> bool:
        """Whether the interval is narrow enough for decisions."""
        return self.spread <= NEAR


def median_of(times: Sequence[float], value: float | None = None) -> Median:
    """Return the median of what followed in time, with its interval; ``value`` stands for the median where that was
    computed otherwise."""
    middles = sorted(float(np.median(block)) for block in np.array_split(np.asarray(times), min(BLOCKS, len(times))))
    outside = outside_of(len(middles))
    middle = float(np.median(times)) if value is None else value
    return Median(middle, min(middle, middles[outside]), max(middle, middles[-1 - outside]))


def outside_of(draws: int) -> int:
    """Return how many of the ordered draws lie outside of a 95 % interval of their median, at each end; of fewer than 6
    none."""
    below, outside = 0.5**draws, 0
    while below + math.comb(draws, outside + 1) * 0.5**draws <= 0.025:
        outside += 1
        below += math.comb(draws, outside) * 0.5**draws
    return outside


def quotient_of(theirs: Sequence[float], ours: Sequence[float]) -> Median:
    """Return how many times as long the first take as the second, of which each was timed right after the other: the
    quotient of the medians."""
    return median_of(np.divide(theirs, ours).tolist(), float(np.median(theirs) / np.median(ours)))


def time_in_turn(
    calls: Mapping[str, Callable[[], Any]], *, repeats: int, warmup: int, seconds: float
) -> dict[str, list[float]]:
    """Return the milliseconds of calls, made in turn (A, B, A, B …): at least ``repeats`` of each, and more until all
    is known.

    All is known when the medians and the quotients to the first are; no call begins after ``seconds`` of timed calls,
    beside the repeats.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(warmup):
        for call in calls.values():
            call()
    started, wanted = time.perf_counter(), max(repeats, FEWEST)
    for turn in range(1, 10**9):
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            times[name].append(1000 * (time.perf_counter() - begun))
        spent = time.perf_counter() - started
        if turn < max(repeats, FEWEST):
            continue
        if spent >= seconds:
            break
        if turn >= wanted and spent >= LEAST_SHARE * seconds:
            if all_known(times):
                break
            wanted = math.ceil(GROWTH * turn)
    return times


def all_known(times: Mapping[str, Sequence[float]]) -> bool:
    """Tell whether every median is known, and how each stands to the first."""
    first, *others = times.values()
    return all(median_of(one).known for one in times.values()) and all(quotient_of(first, one).known for one in others)
