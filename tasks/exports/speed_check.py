"""Is an int8 graph worth its losses? The sentence that keeps one out of the model's folder that is slower than a recipe
asks.

Apart from ``parity.py``, which the stages that write graphs can reach: a verdict that is spoken after they have run is
no part of their keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOISE = 0.05
"""Share by which a measured speed-up may lie below what was asked.

Of one and the same graph, timed against itself in turn, the ratio of the two medians lay up to 1.6 % off with 30
repeats and up to 3.7 % off with the fewest that a recipe may ask, 5. A graph that is exactly as fast must not be
refused by chance, so the allowance lies beyond both.
"""


def too_slow(facts: Mapping[str, Any], least: float) -> str:
    """Return why an int8 graph may not be published; empty where it may. ``facts`` are of int8 timed in turn with its
    own fp32.

    What is unsteady keeps no graph out.
    """
    found = facts["speedup"]
    if facts["unsteady"] or found >= least * (1 - NOISE):
        return ""
    ours, theirs = (facts[name]["p50_ms"] for name in ("model", "teacher"))
    at = f"batch {facts['batch']}, length {facts['length']}, threads {facts['threads']}"
    return (
        f"int8 takes {ours:g} ms, its own fp32 {theirs:g} ms ({at}): {found:.2f} times as fast, and "
        f"exports.min_speedup asks for {least:g}"
    )
