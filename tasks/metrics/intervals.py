"""Closed forms of the 95 % interval of a figure, from its value and the number of rows alone."""

from __future__ import annotations

import math

Z = 1.959964  # 95 % of a normal distribution lie within so many standard deviations


def share_interval(share: float, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy, given as a share (Wilson 1927, Journal of the American Statistical
    Association 22)."""
    wide = 1 + Z**2 / rows
    middle = (share + Z**2 / (2 * rows)) / wide
    reach = Z / wide * math.sqrt(share * (1 - share) / rows + Z**2 / (4 * rows**2))
    return middle - reach, middle + reach


def correlation_interval(correlation: float, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a correlation (Fisher 1921, Metron 1); with 3 rows or fewer it is (-1, 1)."""
    if rows <= 3:
        return -1.0, 1.0
    middle, reach = math.atanh(max(-0.999999, min(0.999999, correlation))), Z / math.sqrt(rows - 3)
    return math.tanh(middle - reach), math.tanh(middle + reach)
