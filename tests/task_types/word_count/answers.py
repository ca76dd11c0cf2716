"""Predictions of word counts. Shape letter: N rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.errors import DataError
from tasks.metrics.intervals import correlation_interval
from tasks.metrics.of_values import MSE, PEARSON
from tasks.task_types.common_answers import LOGITS, heaviest_rows
from tasks.task_types.interfaces import Answers, Floor
from tasks.task_types.types import VALUES


def nearest_counts(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the whole number next to the expected count."""
    return np.rint(np.exp(outputs[LOGITS][:, 0].astype(np.float64))).astype(np.int64)


def refuse_merging(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: counts have no classes."""
    raise DataError("a judging set of word counts cannot merge classes")


def guess(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the correlation of the predictions."""
    return {"selection_correlation": PEARSON(predictions_N, labels_N)}


def least(facts: Mapping[str, float]) -> float:
    """Return the least correlation of a teacher."""
    return 0.2


def read(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the predicted counts."""
    return {"count": nearest_counts(outputs)}


def alone(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, Any]:
    """Return the share of exact counts."""
    return {"exact": float((model["count"] == labels_N).mean())}


def apart(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> dict[str, Any]:
    """Count the rows on which student and teacher differ, and select the furthest."""
    apart_N = np.abs(ours["count"] - theirs["count"])
    rows = heaviest_rows(apart_N > 0, apart_N, ids_N, examples)
    shown = [
        {
            "id": int(ids_N[row]),
            "label": int(labels_N[row]),
            "student": {"answer": int(ours["count"][row])},
            "teacher": {"answer": int(theirs["count"][row])},
        }
        for row in rows
    ]
    return {"counts": {"rows": len(labels_N), "differ": int((apart_N > 0).sum())}, "examples": {"furthest": shown}}


ANSWERS = Answers(
    outputs=VALUES,
    decide=nearest_counts,
    metrics={"pearson": PEARSON, "mse": MSE},
    dtype="int64",
    agreement=PEARSON,
    unchanged=np.equal,
    merge=refuse_merging,
    guess=guess,
    floor=Floor("selection_correlation", least, "the least correlation of a teacher of counts", correlation_interval),
    read=read,
    alone=alone,
    apart=apart,
)
