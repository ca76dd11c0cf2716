"""Predictions of classes and their figures: confusion, calibration, proper scoring rules, and disagreements.

Calibration: Guo et al. 2017, "On Calibration of Modern Neural Networks", arXiv:1706.04599 (bins of equal width over the
highest probability; the expected calibration error is the mean gap between confidence and accuracy, weighted by the
rows of each bin). Shape letters: N rows, C classes, K bins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.metrics.intervals import share_interval
from tasks.metrics.of_classes import ACCURACY, BALANCED_ACCURACY, F1, MACRO_F1, MACRO_F1_ACCURACY, MATTHEWS
from tasks.metrics.of_groups import F1_GROUP_EXACT, GROUP_EXACT, GROUP_F1, GROUP_PARITY
from tasks.task_types.common_answers import LOGITS, count_right, examples_of, finite, heaviest_rows, reliability
from tasks.task_types.interfaces import Answers, Floor, ModelComparison
from tasks.task_types.types import CLASS_LOGITS

MARGIN = 0.05  # minimum margin of a teacher's accuracy above the majority class, as a share


# --- predictions ------------------------------------------------------------------------------------------------------


def predicted_classes(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the predicted classes of logits [N, C]."""
    return np.asarray(outputs[LOGITS].argmax(-1))


def same_classes(before_N: np.ndarray, after_N: np.ndarray) -> np.ndarray:
    """Tell by row whether the class is the same."""
    return before_N == after_N


def merge_classes(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Return logits in which the first of each group of merged classes has the group's maximum and the others are -inf,
    so that the first is predicted wherever one of the group was."""
    logits_NC = outputs[LOGITS]
    found_NC = np.full_like(logits_NC, -np.inf)
    for number, first in enumerate(merged):
        found_NC[:, first] = np.maximum(found_NC[:, first], logits_NC[:, number])
    return {LOGITS: found_NC}


def guess_by_majority(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the accuracy of always guessing the majority class, and the accuracy of the predictions."""
    majority = np.unique(labels_N, return_counts=True)[1].max() / len(labels_N)
    return {"majority": float(majority), "selection_accuracy": ACCURACY(predictions_N, labels_N)}


def least_accuracy(facts: Mapping[str, float]) -> float:
    """Return the least accuracy of a teacher: clearly above that of the majority class, and possible."""
    return min(0.999, facts["majority"] + MARGIN)


# --- error analysis ---------------------------------------------------------------------------------------------------


def read_classes(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return log-probabilities, the predicted class, and its probability."""
    logits_NC = outputs[LOGITS].astype(np.float64)
    shifted_NC = logits_NC - logits_NC.max(-1, keepdims=True) if logits_NC.size else logits_NC
    logp_NC = shifted_NC - np.log(np.exp(shifted_NC).sum(-1, keepdims=True))
    return {"logp": logp_NC, "answer": logp_NC.argmax(-1), "certainty": np.exp(logp_NC.max(-1))}


def analyse_classes(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return the confusion matrix (a row for each true class), the calibration, and proper scoring rules: negative
    log-likelihood and Brier score."""
    classes, rows = model["logp"].shape[1], len(labels_N)
    confusion_CC = np.zeros((classes, classes), dtype=int)
    np.add.at(confusion_CC, (labels_N, model["answer"]), 1)
    truth_NC = np.eye(classes)[labels_N]
    found = {"confusion": confusion_CC.tolist(), **reliability(model["certainty"], model["answer"] == labels_N, bins)}
    nll = -model["logp"][np.arange(rows), labels_N].mean() if rows else None
    brier = ((np.exp(model["logp"]) - truth_NC) ** 2).sum(-1).mean() if rows else None
    return found | {"nll": finite(nll), "brier": finite(brier)}


def compare_classes(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the rows that student and teacher predict correctly, and select examples: confident disagreements, and rows
    that only the student predicts correctly."""
    ours_right_N, theirs_right_N = ours["answer"] == labels_N, theirs["answer"] == labels_N
    differ_N = ours["answer"] != theirs["answer"]
    # both must be confident: a model that is unsure disagrees by chance
    surest_N = np.minimum(ours["certainty"], theirs["certainty"])
    chosen = {
        "surest": heaviest_rows(differ_N, surest_N, ids_N, examples),
        "corrected": heaviest_rows(ours_right_N & differ_N, surest_N, ids_N, examples),
    }

    return {
        "counts": {**count_right(ours_right_N, theirs_right_N), "differ": int(differ_N.sum())},
        "examples": examples_of(chosen, ids_N, labels_N, (ours, theirs), int),
    }


ANSWERS = Answers(
    outputs=CLASS_LOGITS,
    decide=predicted_classes,
    metrics={
        "accuracy": ACCURACY,
        "f1": F1,
        "macro_f1": MACRO_F1,
        "balanced_accuracy": BALANCED_ACCURACY,
        "matthews": MATTHEWS,
        "macro_f1_accuracy": MACRO_F1_ACCURACY,
        "group_exact": GROUP_EXACT,
        "group_f1": GROUP_F1,
        "f1_group_exact": F1_GROUP_EXACT,
        "group_parity": GROUP_PARITY,
    },
    dtype="int64",
    agreement=ACCURACY,
    unchanged=same_classes,
    merge=merge_classes,
    guess=guess_by_majority,
    floor=Floor(
        fact="selection_accuracy",
        least=least_accuracy,
        description="the majority class plus 5 points",
        interval=share_interval,
    ),
    read=read_classes,
    alone=analyse_classes,
    apart=compare_classes,
)
