"""Error analysis: confusion between classes, calibration, and disagreement between student and teacher.

Everything is computed from the predictions stored with the scorecards, of each one's first seed: the chosen model,
which is the one to be registered. Calibration: Guo et al. 2017, "On Calibration of Modern Neural Networks",
arXiv:1706.04599 (bins of equal width over the highest probability; the expected calibration error is the mean gap
between confidence and accuracy, weighted by the rows of each bin). Rows are ranked by figures and then by row id, so
that the same predictions always select the same rows. Shape letters: N rows, C classes, K bins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tasks.engine.job import Job
from tasks.ports.rows.row_files import StoredRows, read_split
from tasks.recipe.slices import InspectSlice
from tasks.scoring.inspection_files import write_inspection
from tasks.scoring.predictions import predictions_of

POINTS = 300
"""Points of a scatter plot; more of them would overlap without adding information."""

CARDS = ("card", "teacher")

Answers = Mapping[str, np.ndarray]
"""The predictions of one model: arrays derived from its logits [N, C], as returned by ``Kind.read``."""


def inspect_answers(job: Job) -> dict[str, Any]:
    """Analyse one scorecard's predictions, beside the teacher's if given, and store the texts of the rows selected as
    examples."""
    knobs = job.read(InspectSlice)
    kind = KINDS[knobs.task_type]
    rows = read_split(job.inputs["rows"], knobs.split)
    said = {
        name: kind.read(predictions_of(job.inputs[name], knobs.split, rows.ids).logits_NC.astype(np.float64))
        for name in CARDS
        if name in job.inputs
    }
    found = kind.alone(said["card"], rows.labels_N, knobs.bins)
    if "teacher" in said:
        found["apart"] = kind.apart(said["card"], said["teacher"], rows, knobs.examples)
    shown = {entry["id"] for kept in found.get("apart", {}).get("examples", {}).values() for entry in kept}
    texts = {
        str(row): (rows.texts[place], rows.pairs[place] if rows.pairs else None)
        for place, row in enumerate(rows.ids)
        if row in shown
    }
    write_inspection(job.output, found, texts)
    return {
        "rows": len(rows),
        "shown": len(texts),
        **{name: value for name, value in found.items() if isinstance(value, float)},
    }


# --- classes ----------------------------------------------------------------------------------------------------------


def read_classes(logits_NC: np.ndarray) -> dict[str, np.ndarray]:
    """Return log-probabilities, the predicted class, and its probability."""
    shifted_NC = logits_NC - logits_NC.max(-1, keepdims=True) if logits_NC.size else logits_NC
    logp_NC = shifted_NC - np.log(np.exp(shifted_NC).sum(-1, keepdims=True))
    return {"logp": logp_NC, "answer": logp_NC.argmax(-1), "certainty": np.exp(logp_NC.max(-1))}


def analyse_classes(said: Answers, labels_N: np.ndarray, bins: int) -> dict[str, Any]:
    """Return the confusion matrix (a row for each true class), the calibration, and proper scoring rules: negative
    log-likelihood and Brier score."""
    classes, rows = said["logp"].shape[1], len(labels_N)
    confusion_CC = np.zeros((classes, classes), dtype=int)
    np.add.at(confusion_CC, (labels_N, said["answer"]), 1)
    truth_NC = np.eye(classes)[labels_N]
    found = {"confusion": confusion_CC.tolist(), **calibration(said["certainty"], said["answer"] == labels_N, bins)}
    nll = -said["logp"][np.arange(rows), labels_N].mean() if rows else None
    brier = ((np.exp(said["logp"]) - truth_NC) ** 2).sum(-1).mean() if rows else None
    return found | {"nll": finite(nll), "brier": finite(brier)}


def calibration(certainty_N: np.ndarray, right_N: np.ndarray, bins: int) -> dict[str, Any]:
    """Return the reliability diagram's bins and the expected calibration error; without rows it is undefined."""
    place_N = np.minimum((certainty_N * bins).astype(int), bins - 1)
    count_K = np.bincount(place_N, minlength=bins)
    sure_K, right_K = (
        np.bincount(place_N, weights=values, minlength=bins) for values in (certainty_N, right_N.astype(float))
    )
    shown = [
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
        "bins": shown,
    }


def compare_classes(ours: Answers, theirs: Answers, rows: StoredRows, examples: int) -> dict[str, Any]:
    """Count the rows that student and teacher predict correctly, and select examples: confident disagreements, and rows
    that only the student predicts correctly."""
    labels_N, ids_N = rows.labels_N, np.asarray(rows.ids)
    ours_right_N, theirs_right_N, differ_N = (
        ours["answer"] == labels_N,
        theirs["answer"] == labels_N,
        ours["answer"] != theirs["answer"],
    )
    counts = {
        "rows": len(labels_N),
        "differ": differ_N.sum(),
        "both_right": (ours_right_N & theirs_right_N).sum(),
        "only_student": (ours_right_N & ~theirs_right_N).sum(),
        "only_teacher": (~ours_right_N & theirs_right_N).sum(),
        "both_wrong": (~ours_right_N & ~theirs_right_N).sum(),
    }
    # both must be confident: a model that is unsure disagrees by chance
    surest_N = np.minimum(ours["certainty"], theirs["certainty"])
    chosen = {
        "surest": pick(differ_N, surest_N, ids_N, examples),
        "corrected": pick(ours_right_N & differ_N, surest_N, ids_N, examples),
    }

    def example(row: int) -> dict[str, Any]:
        told = {
            who: {"answer": int(said["answer"][row]), "probability": float(said["certainty"][row])}
            for who, said in (("student", ours), ("teacher", theirs))
        }
        return {"id": int(ids_N[row]), "label": int(labels_N[row]), **told}

    return {
        "counts": {name: int(count) for name, count in counts.items()},
        "examples": {name: [example(row) for row in kept] for name, kept in chosen.items()},
    }


# --- numbers ----------------------------------------------------------------------------------------------------------


def read_values(logits_NC: np.ndarray) -> dict[str, np.ndarray]:
    """Return the predicted values."""
    return {"value": logits_NC[:, 0]}


def analyse_values(said: Answers, labels_N: np.ndarray, bins: int) -> dict[str, Any]:
    """Return statistics of the residuals, their histogram, and a sample of points (label, prediction) spread evenly
    over the rows."""
    residual_N = said["value"] - labels_N
    if not len(residual_N):
        return {"bias": None, "mae": None, "rmse": None, "residuals": [], "points": []}
    count_K, edges = np.histogram(residual_N, bins=bins)
    bars = [
        {"low": float(low), "high": float(high), "rows": int(count)}
        for low, high, count in zip(edges, edges[1:], count_K, strict=False)
    ]
    sample = np.unique(np.linspace(0, len(labels_N) - 1, min(POINTS, len(labels_N))).round().astype(int))
    points = [[round(float(labels_N[row]), 4), round(float(said["value"][row]), 4)] for row in sample]
    figures = {"bias": residual_N.mean(), "mae": np.abs(residual_N).mean(), "rmse": np.sqrt((residual_N**2).mean())}
    return {**{name: finite(value) for name, value in figures.items()}, "residuals": bars, "points": points}


def compare_values(ours: Answers, theirs: Answers, rows: StoredRows, examples: int) -> dict[str, Any]:
    """Count the rows on which student or teacher is nearer to the label, and select examples: the largest
    disagreements, and rows on which the student is nearer."""
    labels_N, ids_N = rows.labels_N, np.asarray(rows.ids)
    ours_off_N, theirs_off_N = np.abs(ours["value"] - labels_N), np.abs(theirs["value"] - labels_N)
    apart_N = np.abs(ours["value"] - theirs["value"])
    counts = {
        "rows": len(labels_N),
        "student_nearer": int((ours_off_N < theirs_off_N).sum()),
        "teacher_nearer": int((theirs_off_N < ours_off_N).sum()),
    }
    chosen = {
        "surest": pick(apart_N > 0, apart_N, ids_N, examples),
        "corrected": pick(ours_off_N < theirs_off_N, theirs_off_N - ours_off_N, ids_N, examples),
    }

    def example(row: int) -> dict[str, Any]:
        return {
            "id": int(ids_N[row]),
            "label": float(labels_N[row]),
            "student": {"answer": float(ours["value"][row])},
            "teacher": {"answer": float(theirs["value"][row])},
        }

    return {
        "counts": counts,
        "gap": finite(apart_N.mean()) if len(apart_N) else None,
        "examples": {name: [example(row) for row in kept] for name, kept in chosen.items()},
    }


# --- both kinds -------------------------------------------------------------------------------------------------------


def pick(wanted_N: np.ndarray, weight_N: np.ndarray, ids_N: np.ndarray, most: int) -> list[int]:
    """Return the positions of the ``most`` selected rows with the greatest weight, greatest first; ties in the order of
    their ids."""
    places = np.flatnonzero(wanted_N)
    order = np.lexsort((ids_N[places], -weight_N[places]))
    return [int(row) for row in places[order][:most]]


def finite(value: Any) -> float | None:
    """Return a plain float, or None if the value is missing or not finite."""
    return float(value) if value is not None and np.isfinite(value) else None


class Kind(NamedTuple):
    """The functions that analyse the predictions of one kind of task."""

    read: Callable[[np.ndarray], dict[str, np.ndarray]]
    alone: Callable[[Answers, np.ndarray, int], dict[str, Any]]
    apart: Callable[[Answers, Answers, StoredRows, int], dict[str, Any]]


KINDS = {
    "classification": Kind(read_classes, analyse_classes, compare_classes),
    "regression": Kind(read_values, analyse_values, compare_values),
}
