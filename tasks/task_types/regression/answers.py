"""Predictions of values and their figures: residuals, and disagreements of two models. Shape letter: N rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import DataError
from tasks.metrics.intervals import correlation_interval
from tasks.metrics.of_values import MSE, PEARSON, PEARSON_SPEARMAN, SPEARMAN
from tasks.task_types.common_answers import LOGITS, finite, heaviest_rows
from tasks.task_types.interfaces import Answers, Example, Floor, ModelComparison
from tasks.task_types.types import VALUES

CORRELATED = 0.3  # minimum correlation of a teacher
POINTS = 300
"""Points of a scatter plot; more of them would overlap without adding information."""


# --- predictions ------------------------------------------------------------------------------------------------------


def predicted_values(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the predicted values of logits [N, 1]."""
    return outputs[LOGITS][:, 0]


def close_values(before_N: np.ndarray, after_N: np.ndarray) -> np.ndarray:
    """Tell by row whether the value is the same, up to the arithmetic of another machine."""
    return np.isclose(before_N, after_N, rtol=1e-3, atol=1e-3)


def refuse_merging(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: values have no classes that could be merged."""
    raise DataError("a judging set of values cannot merge classes; leave classes out of its section data.judge")


def guess_by_mean(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the correlation of a constant guess, which is 0, and that of the predictions."""
    return {"majority": 0.0, "selection_correlation": PEARSON(predictions_N, labels_N)}


def least_correlation(facts: Mapping[str, float]) -> float:
    """Return the least correlation of a teacher."""
    return CORRELATED


# --- error analysis ---------------------------------------------------------------------------------------------------


def read_values(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the predicted values."""
    return {"value": outputs[LOGITS][:, 0].astype(np.float64)}


def analyse_values(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return statistics of the residuals, their histogram, and a sample of points (label, prediction) spread evenly
    over the rows."""
    residual_N = model["value"] - labels_N
    if not len(residual_N):
        return {"bias": None, "mae": None, "rmse": None, "residuals": [], "points": []}
    count_K, edges = np.histogram(residual_N, bins=bins)
    bars = [
        {"low": float(low), "high": float(high), "rows": int(count)}
        for low, high, count in zip(edges, edges[1:], count_K, strict=False)
    ]
    sample = np.unique(np.linspace(0, len(labels_N) - 1, min(POINTS, len(labels_N))).round().astype(int))
    points = [[round(float(labels_N[row]), 4), round(float(model["value"][row]), 4)] for row in sample]
    figures = {"bias": residual_N.mean(), "mae": np.abs(residual_N).mean(), "rmse": np.sqrt((residual_N**2).mean())}
    return {**{name: finite(value) for name, value in figures.items()}, "residuals": bars, "points": points}


def compare_values(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the rows on which student or teacher is nearer to the label, and select examples: the largest
    disagreements, and rows on which the student is nearer."""
    ours_off_N, theirs_off_N = np.abs(ours["value"] - labels_N), np.abs(theirs["value"] - labels_N)
    apart_N = np.abs(ours["value"] - theirs["value"])
    counts = {
        "rows": len(labels_N),
        "student_nearer": int((ours_off_N < theirs_off_N).sum()),
        "teacher_nearer": int((theirs_off_N < ours_off_N).sum()),
    }
    chosen = {
        "surest": heaviest_rows(apart_N > 0, apart_N, ids_N, examples),
        "corrected": heaviest_rows(ours_off_N < theirs_off_N, theirs_off_N - ours_off_N, ids_N, examples),
    }

    def example(row: int) -> Example:
        return {
            "id": int(ids_N[row]),
            "label": float(labels_N[row]),
            "student": {"answer": float(ours["value"][row])},
            "teacher": {"answer": float(theirs["value"][row])},
        }

    return {
        "counts": counts,
        "gap": finite(apart_N.mean()) if len(apart_N) else None,
        "examples": {name: [example(row) for row in rows] for name, rows in chosen.items()},
    }


ANSWERS = Answers(
    outputs=VALUES,
    decide=predicted_values,
    metrics={"pearson": PEARSON, "spearman": SPEARMAN, "pearson_spearman": PEARSON_SPEARMAN, "mse": MSE},
    dtype="float64",
    agreement=PEARSON,
    unchanged=close_values,
    merge=refuse_merging,
    guess=guess_by_mean,
    floor=Floor(
        fact="selection_correlation",
        least=least_correlation,
        description="the minimum correlation of a regression teacher",
        interval=correlation_interval,
    ),
    read=read_values,
    alone=analyse_values,
    apart=compare_values,
)
