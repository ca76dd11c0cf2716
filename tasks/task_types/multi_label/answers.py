"""Predictions of sets of labels and their figures: exact sets, wrong decisions, confusions and disagreements.

A label is predicted where its log-odds are above 0; a set is one number, of which bit c stands for label c. Shape
letters: N rows, C labels, S seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import DataError
from tasks.metrics.intervals import share_interval
from tasks.metrics.of_label_sets import (
    LABEL_MACRO_F1,
    MICRO_F1,
    MOST_LABELS,
    SUBSET_ACCURACY,
    as_sets,
    members,
)
from tasks.task_types.common_answers import LOGITS, count_right, examples_of, finite, heaviest_rows, reliability
from tasks.task_types.interfaces import Answers, Floor, ModelComparison
from tasks.task_types.types import LABEL_LOGITS

LEAST_F1_GAIN = 0.05
"""Minimum margin of a teacher's F1 above that of the best answer that is the same for all rows."""


# --- predictions ------------------------------------------------------------------------------------------------------


def predicted_sets(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the predicted sets of log-odds [N, C]."""
    return as_sets(outputs[LOGITS] > 0)


def same_sets(before_N: np.ndarray, after_N: np.ndarray) -> np.ndarray:
    """Tell by row whether the set is the same."""
    return before_N == after_N


def refuse_merged_labels(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: each label is decided by itself, so that no two can be merged into one answer."""
    raise DataError("a judging set of a multi-label task cannot merge labels; map each label to one of the task's")


def guess_one_set(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the best F1 of one answer to all rows, and the F1 of the predictions. The best of such answers are the k
    most frequent labels, for some k."""
    frequent_C = np.sort(members(labels_N, np.arange(MOST_LABELS)).sum(1))[::-1]
    right_K, sizes_K = np.cumsum(frequent_C), np.arange(1, MOST_LABELS + 1)
    constant_K = 2 * right_K / np.maximum(sizes_K * len(labels_N) + frequent_C.sum(), 1)
    return {"constant_f1": float(constant_K.max()), "selection_micro_f1": MICRO_F1(predictions_N, labels_N)}


def least_micro_f1(facts: Mapping[str, float]) -> float:
    """Return the least F1 of a teacher: clearly above that of a constant answer, and possible."""
    return min(0.999, facts["constant_f1"] + LEAST_F1_GAIN)


# --- error analysis ---------------------------------------------------------------------------------------------------


def read_sets(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the log-odds, whether each label is predicted, the predicted set, and the certainty of its least sure
    label."""
    logits_NC = outputs[LOGITS].astype(np.float64)
    certainty_NC = 1 / (1 + np.exp(-np.abs(logits_NC)))
    found_NC = logits_NC > 0
    least_N = certainty_NC.min(-1) if certainty_NC.size else np.ones(len(logits_NC))
    return {"logits": logits_NC, "found": found_NC, "answer": as_sets(found_NC), "certainty": least_N}


def analyse_sets(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return the confusions (a row for each true label), the share of wrong decisions, and the mean sizes of sets.

    On the diagonal stand the rows in which a label is rightly predicted, beside it those in which it is missed and
    another is wrongly predicted.
    """
    found_NC = model["found"]
    true_NC = members(labels_N, np.arange(found_NC.shape[1])).T
    missed_NC, wrong_NC = (true_NC & ~found_NC).astype(int), (found_NC & ~true_NC).astype(int)
    confusion_CC = missed_NC.T @ wrong_NC + np.diag((true_NC & found_NC).sum(0))
    rows, certainty_NC = len(labels_N), 1 / (1 + np.exp(-np.abs(model["logits"])))
    return {
        "confusion": confusion_CC.tolist(),
        "bins": reliability(certainty_NC.ravel(), (true_NC == found_NC).ravel(), bins)["bins"],
        "wrong_decisions": finite((true_NC != found_NC).mean()) if rows else None,
        "missed": finite(missed_NC.sum() / max(1, true_NC.sum())) if rows else None,
        "labels_more": finite((found_NC.sum() - true_NC.sum()) / rows) if rows else None,
    }


def compare_label_sets(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the rows whose sets student and teacher predict exactly, and select examples: sets that differ in a label
    of which both are sure, and rows that only the student predicts exactly."""
    ours_right_N, theirs_right_N = ours["answer"] == labels_N, theirs["answer"] == labels_N
    differ_NC = ours["found"] != theirs["found"]
    sure_NC = np.minimum(np.abs(ours["logits"]), np.abs(theirs["logits"]))
    surest_N = np.where(differ_NC, sure_NC, 0.0).max(-1) if differ_NC.size else np.zeros(len(labels_N))
    differ_N = differ_NC.any(-1)
    chosen = {
        "surest": heaviest_rows(differ_N, surest_N, ids_N, examples),
        "corrected": heaviest_rows(ours_right_N & differ_N, surest_N, ids_N, examples),
    }

    return {
        "counts": {
            **count_right(ours_right_N, theirs_right_N),
            "differ": int(differ_N.sum()),
        },
        "examples": examples_of(chosen, ids_N, labels_N, (ours, theirs), int),
    }


ANSWERS = Answers(
    outputs=LABEL_LOGITS,
    decide=predicted_sets,
    metrics={"micro_f1": MICRO_F1, "label_macro_f1": LABEL_MACRO_F1, "subset_accuracy": SUBSET_ACCURACY},
    dtype="int64",
    agreement=SUBSET_ACCURACY,
    unchanged=same_sets,
    merge=refuse_merged_labels,
    guess=guess_one_set,
    floor=Floor(
        fact="selection_micro_f1",
        least=least_micro_f1,
        description="the best F1 of one answer to all rows, plus 5 points",
        interval=share_interval,
    ),
    read=read_sets,
    alone=analyse_sets,
    apart=compare_label_sets,
)
