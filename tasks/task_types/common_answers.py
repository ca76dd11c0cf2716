"""Parts of predictions and of an error analysis that several task types share.

Rows are ranked by figures and then by row id, so that the same predictions always select the same rows. Shape letters:
N rows, or decisions; K bins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LOGITS = "logits"
"""The name of the output of a model with one head, in transformers."""


def heaviest_rows(wanted_N: np.ndarray, weight_N: np.ndarray, ids_N: np.ndarray, most: int) -> list[int]:
    """Return the positions of the ``most`` selected rows with the greatest weight, greatest first; ties in the order of
    their ids."""
    places = np.flatnonzero(wanted_N)
    order = np.lexsort((ids_N[places], -weight_N[places]))
    return [int(row) for row in places[order][:most]]


def finite(value: Any) -> float | None:
    """Return a plain float, or None if the value is missing or not finite."""
    return float(value) if value is not None and np.isfinite(value) else None


def reliability(certainty_N: np.ndarray, right_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return the reliability diagram's bins and the expected calibration error; without rows it is undefined."""
    place_N = np.minimum((certainty_N * bins).astype(int), bins - 1)
    count_K = np.bincount(place_N, minlength=bins)
    sure_K, right_K = (
        np.bincount(place_N, weights=values, minlength=bins) for values in (certainty_N, right_N.astype(float))
    )
    bars = [
        {
            "low": k / bins,
            "high": (k + 1) / bins,
            "rows": int(count_K[k]),
            "certainty": float(sure_K[k] / count_K[k]),
            "accuracy": float(right_K[k] / count_K[k]),
        }
        for k in np.flatnonzero(count_K)
    ]
    return {
        "ece": finite(np.abs(sure_K - right_K).sum() / len(certainty_N)) if len(certainty_N) else None,
        "bins": bars,
    }
