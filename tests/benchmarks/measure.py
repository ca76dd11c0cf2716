"""Interleaved timing: A, B, A, B, … in one process, so that whatever else the machine does falls on both.

A figure is a ratio of time for the same work, round by round; what is quoted is the median, with the least and the
largest beside it.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

CLOCKS = ("cpu", "wall")


@dataclass
class Lap:
    """One timed piece of work: seconds of all threads of this process, seconds on the wall, and how much was done."""

    cpu: float = 0.0
    wall: float = 0.0
    amount: float = 1.0
    tokens: float = 0.0
    """Tokens that were computed, padding included; 0 where nobody counts them."""

    def per_unit(self, clock: str, per: str = "amount") -> float:
        """Return seconds for one unit of work, or for one padded token."""
        return float(getattr(self, clock)) / float(getattr(self, per))


Contestant = Callable[[], Lap]
"""Does its work once and returns the lap; what it prepares outside of ``timed`` does not count."""


def settle() -> None:
    """Wait until the GPU, if one is in use, has nothing left to do."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


@contextmanager
def timed(amount: float = 1.0, tokens: float = 0.0) -> Iterator[Lap]:
    """Time a block of work."""
    lap = Lap(amount=amount, tokens=tokens)
    gc.collect()
    settle()
    wall, cpu = time.perf_counter(), time.process_time()
    yield lap
    settle()
    lap.cpu, lap.wall = time.process_time() - cpu, time.perf_counter() - wall


@dataclass
class Contest:
    """What every contestant took in every round."""

    laps: dict[str, list[Lap]]
    loads: list[float]

    def figure(
        self,
        name: str,
        *,
        of: str,
        against: str,
        target: float | None,
        clock: str = "cpu",
        note: str = "",
        per: str = "amount",
    ) -> Figure:
        """Return how many times faster ``of`` does one unit of work, or one padded token, than ``against``."""
        pairs = list(zip(self.laps[against], self.laps[of], strict=True))
        both = {each: [base.per_unit(each, per) / own.per_unit(each, per) for base, own in pairs] for each in CLOCKS}
        return Figure(
            name,
            of,
            against,
            both[clock],
            clock,
            target,
            note=note,
            other={each: both[each] for each in CLOCKS if each != clock},
        )


@dataclass
class Figure:
    """One line of the table: a ratio in each round, and what was wanted of its median."""

    name: str
    of: str
    against: str
    ratios: list[float]
    clock: str
    target: float | None
    unit: str = "×"
    at_most: bool = False
    note: str = ""
    other: dict[str, list[float]] = field(default_factory=dict)
    """The same by the other clock."""

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.ratios)

    @property
    def met(self) -> bool | None:
        """Whether the median is what was wanted; None where nothing was."""
        if self.target is None:
            return None
        return self.median <= self.target if self.at_most else self.median >= self.target

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {
            "median": self.median,
            "least": min(self.ratios),
            "most": max(self.ratios),
            "met": self.met,
        }


def interleave(contestants: Mapping[str, Contestant], repeats: int, *, tell: Callable[[str], None] = print) -> Contest:
    """Run every contestant once to warm up, then all of them in turn, ``repeats`` times."""
    for contestant in contestants.values():
        contestant()
    laps: dict[str, list[Lap]] = {name: [] for name in contestants}
    loads = []
    for number in range(repeats):
        loads.append(os.getloadavg()[0])
        for name, contestant in contestants.items():
            laps[name].append(contestant())
        tell(
            f"round {number + 1} of {repeats}: "
            + ", ".join(f"{name} {laps[name][-1].per_unit('cpu'):.4g} s" for name in contestants)
        )
    return Contest(laps, loads)
