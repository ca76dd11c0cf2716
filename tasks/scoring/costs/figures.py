"""A figure with its origin: measured, estimated by a named method, or unknown.

Unknown is None, never 0. A sum with an unknown part is unknown itself; the sum of its known parts is recorded as
``at_least``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NotRequired, TypedDict


class Figure(TypedDict):
    """A figure with its origin, as the ledger stores it."""

    value: float | None
    how: Literal["measured", "estimated", "unknown"]
    by: str
    """The method, in a short phrase."""
    at_least: NotRequired[float]
    """The sum of the known parts, if others are unknown."""


def measured(value: float, by: str) -> Figure:
    """Return a figure read from an instrument."""
    return {"value": value, "how": "measured", "by": by}


def estimated(value: float, by: str) -> Figure:
    """Return a figure computed by a method of estimation."""
    return {"value": value, "how": "estimated", "by": by}


def unknown(by: str) -> Figure:
    """Return an unknown figure, with the reason."""
    return {"value": None, "how": "unknown", "by": by}


def scaled(figure: Figure, factor: float | None, by: str) -> Figure:
    """Return a figure multiplied by a factor from a table: always an estimate, and unknown if either of the two is
    unknown."""
    if figure["value"] is None:
        if factor is None or "at_least" not in figure:
            return figure
        return {**figure, "at_least": figure["at_least"] * factor}
    return unknown(by) if factor is None else estimated(figure["value"] * factor, by)


def total(figures: Iterable[Figure], *, nothing: str = "no cost") -> Figure:
    """Return the sum of figures; the sum of no figures is a measured 0."""
    parts = list(figures)
    known = [part for part in parts if part["value"] is not None]
    come_to = math.fsum(least(part) for part in parts)
    if len(known) < len(parts):
        return {**unknown(f"{len(parts) - len(known)} of {len(parts)} parts are unknown"), "at_least": come_to}
    methods = list(dict.fromkeys(part["by"] for part in parts))
    by = "; ".join(methods) if len(methods) <= 2 else f"{methods[0]}, and {len(methods) - 1} other methods"
    return (estimated if any(part["how"] == "estimated" for part in parts) else measured)(come_to, by or nothing)


def least(figure: Figure) -> float:
    """Return a lower bound of a figure."""
    return float(figure["value"] if figure["value"] is not None else figure.get("at_least", 0.0))
