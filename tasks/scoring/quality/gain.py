"""A figure with its interval, turned so that more is better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gain:
    """A figure with its interval: what a bound is held against, or how far a candidate's metric lies above another's on
    the same rows.

    Of a difference, errors are turned, so that more is better.
    """

    value: float
    low: float
    high: float
