"""Durations in a readable form."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a number of seconds in a suitable unit."""
    return (
        f"{seconds:.1f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} min"
        if seconds < 6000
        else f"{seconds / 3600:.1f} h"
    )
