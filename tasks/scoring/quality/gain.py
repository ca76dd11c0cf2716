"""A figure with its interval, with the sign chosen so that more is better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gain:
    """A figure with its interval: a figure to compare with a bound, or the difference of a candidate's metric from
    another's on the same rows.

    In a difference, the sign is reversed for errors, so that more is better.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Unread:
    """An interval that cannot be computed, with the reason: a phrase for the sentence of a criterion."""

    reason: str
