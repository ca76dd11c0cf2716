"""Parts of predictions and of an error analysis that several task types share.

Rows are ranked by figures and then by row id, so that the same predictions always select the same rows. Shape letter:
N rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LOGITS = "logits"
"""The name of the output of a model with one head, in transformers."""


def pick(wanted_N: np.ndarray, weight_N: np.ndarray, ids_N: np.ndarray, most: int) -> list[int]:
    """Return the positions of the ``most`` selected rows with the greatest weight, greatest first; ties in the order of
    their ids."""
    places = np.flatnonzero(wanted_N)
    order = np.lexsort((ids_N[places], -weight_N[places]))
    return [int(row) for row in places[order][:most]]


def finite(value: Any) -> float | None:
    """Return a plain float, or None if the value is missing or not finite."""
    return float(value) if value is not None and np.isfinite(value) else None
