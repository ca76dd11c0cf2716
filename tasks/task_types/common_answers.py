"""Parts of predictions and of an error analysis that several task types share.

Rows are ranked by figures and then by row id, so that the same predictions always select the same rows. Shape letters:
N rows, or decisions; K bins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.task_types.interfaces import Example

LOGITS = "logits"
"""The name of the output of a model with one head, in transformers."""


def heaviest_rows(wanted_N: np.ndarray, weight_N: np.ndarray, ids_N: np.ndarray, most: int) -> list[int]:
    """Return the positions of the ``most`` selected rows with the greatest weight, greatest first; ties in the order of
    their ids."""
    places = np.flatnonzero(wanted_N)
    order = np.lexsort((ids_N[places], -weight_N[places]))
    return [int(row) for row in places[order][:most]]


def count_right(ours_right_N: np.ndarray, theirs_right_N: np.ndarray) -> dict[str, int]:
    """Count rows by the models that predict them correctly."""
    return {
        "rows": len(ours_right_N),
        "both_right": int((ours_right_N & theirs_right_N).sum()),
        "only_student": int((ours_right_N & ~theirs_right_N).sum()),
        "only_teacher": int((~ours_right_N & theirs_right_N).sum()),
        "both_wrong": int((~ours_right_N & ~theirs_right_N).sum()),
    }


def examples_of(
    chosen: Mapping[str, Sequence[int]],
    ids_N: np.ndarray,
    labels_N: np.ndarray,
    models: Sequence[Mapping[str, np.ndarray]],
    kind: type[int] | type[str],
) -> dict[str, list[Example]]:
    """Return the chosen rows of each sort with their labels and the answers of student and teacher, both of this
    ``kind``; answers have a probability where a type states how certain they are."""

    def answer(model: Mapping[str, np.ndarray], row: int) -> dict[str, object]:
        given: dict[str, object] = {"answer": kind(model["answer"][row])}
        return {**given, "probability": float(model["certainty"][row])} if "certainty" in model else given

    def example(row: int) -> Example:
        student, teacher = (answer(model, row) for model in models)
        return {"id": int(ids_N[row]), "label": kind(labels_N[row]), "student": student, "teacher": teacher}

    return {name: [example(row) for row in rows] for name, rows in chosen.items()}


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
