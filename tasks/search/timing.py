"""Timing of shapes in turn by the processor's time, until their medians are known or the time limit is reached.

A call with one thread takes as much processor time as wall time on a machine that does nothing else, and on a busy one
its processor time hardly changes: sums of parts then predict a whole model several times better. With more threads the
processor's time is a sum over threads, so the wall clock is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tasks.recipe.judging import Speed
from tasks.scoring.speed.timing import time_in_turn


def milliseconds_in_turn(calls: Mapping[str, Callable[[], Any]], knobs: Speed) -> dict[str, list[float]]:
    """Return the milliseconds of calls in turn, as ``time_in_turn`` does."""
    clock = time.thread_time if knobs.threads == 1 else time.perf_counter
    return time_in_turn(calls, repeats=knobs.repeats, warmup=knobs.warmup, seconds=knobs.seconds, clock=clock)
