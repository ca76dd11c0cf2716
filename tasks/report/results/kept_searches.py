"""A kept search in words: how many shapes fit, and how far its predictions of latencies and its ranking are right."""

from __future__ import annotations

from tasks.report.format.numbers import plural
from tasks.report.results.results_file import KeptSearch


def searched(search: KeptSearch | None) -> str:
    """Return the part of a line on a run that begins with a semicolon; empty without a search over shapes."""
    if search is None:
        return ""
    parts = [f"{plural(search.points, 'point')} searched, {plural(search.fitting, 'shape')} fit"]
    if search.error is not None:
        rank = "" if search.rank_correlation is None else f", rank correlation {search.rank_correlation:.3f}"
        unseen = f"{plural(search.checks, 'shape')} that are no part of its latency table"
        parts.append(f"error {100 * search.error:.1f} % on {unseen}{rank}")
    if search.supernet_tau is not None:
        parts.append(f"tau {search.supernet_tau:.2f} of the supernet to shapes trained alone")
    if search.tau is not None:
        parts.append(f"tau {search.tau:.2f} to the whole trainings of its candidates")
    return "; " + ", ".join(parts)
