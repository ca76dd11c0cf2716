"""A figure that says where it is from: measured, estimated by some method, or unknown.

Unknown is None, never 0. A sum with an unknown part is unknown itself; what its known parts come to stands beside it
(``at_least``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

Figure = dict[str, Any]
"""``{"value": float | None, "how": "measured" | "estimated" | "unknown", "by": "one short phrase"}``."""


def measured(value: float, by: str) -> Figure:
    """Return what an instrument said."""
    return {"value": value, "how": "measured", "by": by}


def estimated(value: float, by: str) -> Figure:
    """Return what a method came to."""
    return {"value": value, "how": "estimated", "by": by}


def unknown(by: str) -> Figure:
    """Return that something is not known, and why."""
    return {"value": None, "how": "unknown", "by": by}


def scaled(figure: Figure, factor: float | None, by: str) -> Figure:
    """Multiply a figure by a factor out of a table: an estimate, whatever the figure was; unknown where one of the two
    is."""
    if figure["value"] is None:
        return {
            **figure,
            **({"at_least": figure["at_least"] * factor} if factor is not None and "at_least" in figure else {}),
        }
    return unknown(by) if factor is None else estimated(figure["value"] * factor, by)


def total(figures: Iterable[Figure], *, nothing: str = "nothing was spent") -> Figure:
    """Add figures up; nothing comes to a measured 0."""
    parts = list(figures)
    known = [part for part in parts if part["value"] is not None]
    come_to = math.fsum(least(part) for part in parts)
    if len(known) < len(parts):
        return {**unknown(f"{len(parts) - len(known)} of {len(parts)} parts are unknown"), "at_least": come_to}
    methods = list(dict.fromkeys(part["by"] for part in parts))
    by = "; ".join(methods) if len(methods) <= 2 else f"{methods[0]}, and {len(methods) - 1} other methods"
    return (estimated if any(part["how"] == "estimated" for part in parts) else measured)(come_to, by or nothing)


def least(figure: Mapping[str, Any]) -> float:
    """Return what a figure comes to at least."""
    return float(figure["value"] if figure["value"] is not None else figure.get("at_least", 0.0))
