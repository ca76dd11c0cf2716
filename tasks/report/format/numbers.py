"""Figures as text: an undefined, infinite or non-numeric value is a dash, never a number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tasks.report.format.baseline_comparison import Bounded
from tasks.report.format.pareto import number
from tasks.task_types.types import ERROR_METRICS

DASH = "—"


def figure(value: Any, form: str = ".3f", factor: float = 1.0) -> str:
    """Return a figure, or a dash."""
    found = number(value)
    return DASH if found is None else f"{found * factor:{form}}"


def count(value: Any) -> str:
    """Return a whole number with commas."""
    return figure(value, ",.0f")


def amount(value: Any) -> str:
    """Return a quantity of any size without powers of ten; a small one has three significant digits."""
    found = number(value)
    if found is None:
        return DASH
    if 1e-9 < found < 0.01:
        return f"{found:.{2 - math.floor(math.log10(found))}f}".rstrip("0")
    return f"{found:,.4g}" if found < 1e4 else f"{found:,.0f}"


def megabytes(size: Any) -> str:
    """Return a number of bytes in megabytes, one below 0.1 with two significant digits; never 0 for a known size."""
    found = number(size)
    return DASH if found is None else f"{found / 1e6:,.1f}" if found >= 1e5 else f"{found / 1e6:.2g}"


def percent(value: Any) -> str:
    """Return a share in per cent."""
    found = number(value)
    return DASH if found is None else f"{100 * found:.1f} %"


def share_in_words(headline: str) -> str:
    """Return how a share of the teacher is computed where the headline metric is an error; empty for a score."""
    if headline not in ERROR_METRICS:
        return ""
    return f"the teacher's {headline} over the model's, as less of it is better"


def share_label(headline: str, where: str) -> str:
    """Return the name of the row with a model's share of the teacher on some rows, and how the share is computed where
    it is no plain quotient."""
    how = share_in_words(headline)
    return f"share of the teacher, {where} ({how})" if how else f"share of the teacher, {where}"


def signed(value: Any) -> str:
    """Return a figure with its sign, with a typographic minus."""
    return figure(value, "+.3f").replace("-", "−")


def bounds(found: Bounded, form: Callable[[Any], str] = figure) -> str:
    """Return an interval; empty if it is undefined."""
    low, high = found.low, found.high
    return "" if number(low) is None or number(high) is None else f"[{form(low)}, {form(high)}]"


def times(larger: Any, smaller: Any, words: str) -> str:
    """Return in words how many times smaller the second quantity is than the first, or that it is not smaller; empty if
    one is unknown."""
    first, second = number(larger), number(smaller)
    if first is None or not second:
        return ""
    return f"{first / second:.1f} times {words}" if first > second else "as large as the teacher or larger"


def span(seconds: Any) -> str:
    """Return a duration in a suitable unit."""
    value = number(seconds)
    if value is None:
        return DASH
    return f"{value:.1f} s" if value < 100 else f"{value / 60:.0f} min" if value < 6000 else f"{value / 3600:.1f} h"


def money(dollars: Any) -> str:
    """Return an amount in dollars; small amounts with two significant digits."""
    value = number(dollars)
    if value is None:
        return DASH
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.2g}" if value >= 1e-4 else f"${value:.1e}"


def plural(many: int, what: str) -> str:
    """Return a count with its noun."""
    return f"{many:,} {what}{'' if many == 1 else 's'}"
