"""The figures of a row of the results whose model was not scored, such as a graph that is not run here."""

from __future__ import annotations

from tasks.results.row import Estimate, ResultRow

WITHOUT_FIGURES = Estimate(value=None, low=None, high=None)
"""An estimate that is written as three null values."""


def figures_without_scores(row: ResultRow) -> dict[str, object]:
    """Return the figures of a row without scores, with the splits and metrics of this one."""
    return {
        "metrics": {split: dict.fromkeys(found, WITHOUT_FIGURES) for split, found in row.metrics.items()},
        "per_seed": {split: dict.fromkeys(found, ()) for split, found in row.metrics.items()},
        "deviation": {split: dict.fromkeys(found) for split, found in row.metrics.items()},
        "means": {},
        "retained": dict.fromkeys(row.retained or {}, WITHOUT_FIGURES),
        "difference": dict.fromkeys(row.difference or {}, WITHOUT_FIGURES),
        "agreement": dict.fromkeys(row.agreement or {}),
    }
