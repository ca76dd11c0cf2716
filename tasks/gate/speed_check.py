"""Speed check of quantized graphs: the reason why a graph that is slower than the recipe demands is not published.

Kept apart from ``tasks/exports/parity.py``, which the stages that write graphs can reach: this verdict is made after
they have run, and must not be part of their keys.
"""

from __future__ import annotations

from tasks.results.facts import SpeedFacts

NOISE = 0.05
"""Share by which a measured speed-up may lie below the required one.

Measured with one graph against itself, timed alternately: the ratio of the two medians was up to 1.6 % off with 30
repeats, and up to 3.7 % off with 5, the fewest that a recipe may set. A graph of equal speed must not be refused by
chance, so the allowance is larger than both.
"""


def too_slow(facts: SpeedFacts, least: float, name: str = "int8") -> str:
    """Return the reason why a quantized graph, of a format's name, may not be published; empty if it may. ``facts``
    compare it with its own fp32, timed alternately.

    An unsteady measurement refuses no graph.
    """
    found = facts.speedup
    if facts.unsteady or found >= least * (1 - NOISE):
        return ""
    ours, theirs = facts.model.p50_ms, facts.teacher.p50_ms
    at = f"batch {facts.batch}, length {facts.length}, threads {facts.threads}"
    return (
        f"{name} takes {ours:g} ms, its own fp32 {theirs:g} ms ({at}): {found:.2f} times as fast, and "
        f"exports.min_speedup requires {least:g}"
    )
