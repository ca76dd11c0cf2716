"""Timing of shapes in turn by the processor's time, until their medians are known or the time limit is reached.

A call with one thread takes as much processor time as wall time on a machine that does nothing else, and on a busy one
its processor time hardly changes: sums of parts then predict a whole model several times better. With more threads the
processor's time is a sum over threads, so the wall clock is read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from tasks.recipe.judging import Speed
from tasks.scoring.speed.timing import FEWEST, GROWTH, LEAST_SHARE, all_known


def milliseconds_in_turn(calls: Mapping[str, Callable[[], Any]], knobs: Speed) -> dict[str, list[float]]:
    """Return the milliseconds of calls in turn (A, B, A, B …): at least ``repeats`` of each, and more until all medians
    and quotients to the first are known; after ``seconds`` no new turn begins."""
    clock = time.thread_time if knobs.threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(knobs.warmup):
        for call in calls.values():
            call()
    started, fewest = time.perf_counter(), max(knobs.repeats, FEWEST)
    wanted, turn = fewest, 0
    while True:
        turn += 1
        for name, call in calls.items():
            begun = clock()
            call()
            times[name].append(1000 * (clock() - begun))
        spent = time.perf_counter() - started
        if turn < fewest:
            continue
        if spent >= knobs.seconds:
            return times
        if turn >= wanted and spent >= LEAST_SHARE * knobs.seconds:
            if all_known(times):
                return times
            wanted = math.ceil(GROWTH * turn)
