"""Answers in a passage and their figures: with and without a true answer, and questions that two models answer
otherwise. Shape letter: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import DataError
from tasks.metrics.intervals import share_interval
from tasks.metrics.of_answers import NO_ANSWER, SQUAD_EXACT, SQUAD_F1, exact_and_f1, figures_of_rows
from tasks.task_types.common_answers import count_right, examples_of, heaviest_rows
from tasks.task_types.interfaces import Answers, Floor, ModelComparison
from tasks.task_types.spans.passage import BEST_CANDIDATES, FOUND_ANSWER
from tasks.task_types.types import SPAN_LOGITS

ABOVE = 0.05
"""By how much the F1 of a teacher must be above that of a model that finds no answer."""


# --- predictions ------------------------------------------------------------------------------------------------------


def concluded_answers(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the answers of the rows, as they were concluded from logits [N]."""
    return outputs[FOUND_ANSWER]


def same_answers(before_N: np.ndarray, after_N: np.ndarray) -> np.ndarray:
    """Tell by row whether the answer is the same passage."""
    return before_N == after_N


def mean_overlap(ours_N: np.ndarray, theirs_N: np.ndarray) -> float:
    """Return the mean F1 of one model's answers with the other's as the true ones."""
    return SQUAD_F1(ours_N, theirs_N)


def refuse_merged_answers(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: answers have no classes."""
    raise DataError("a judging set of answers cannot merge classes; leave classes out of its section data.judge")


def guess_no_answer(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the F1 of a model that finds no answer, and that of the predictions."""
    nothing_N = np.full(len(labels_N), NO_ANSWER)
    return {"majority": SQUAD_F1(nothing_N, labels_N), "selection_squad_f1": SQUAD_F1(predictions_N, labels_N)}


def least_squad_f1(facts: Mapping[str, float]) -> float:
    """Return the least F1 of a teacher; below 1."""
    return min(facts["majority"] + ABOVE, (1 + facts["majority"]) / 2)


# --- error analysis ---------------------------------------------------------------------------------------------------


def read_answers(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the answers."""
    return {"answer": outputs[FOUND_ANSWER]}


def analyse_answers(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return F1 and exact match of rows that have an answer, the share of the others that is answered by none, and the
    share of answers that are none; a figure without rows is 0."""
    figures_N2, has_N = figures_of_rows(model["answer"], labels_N), labels_N != NO_ANSWER
    with_answer, without = figures_N2[has_N], figures_N2[~has_N]
    return {
        "f1_with_answer": float(with_answer[:, 1].mean()) if len(with_answer) else 0.0,
        "exact_with_answer": float(with_answer[:, 0].mean()) if len(with_answer) else 0.0,
        "right_without_answer": float(without[:, 0].mean()) if len(without) else 0.0,
        "none_found": float((model["answer"] == NO_ANSWER).mean()) if len(labels_N) else 0.0,
    }


def compare_answers(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the rows that student and teacher answer exactly, and select rows whose answers share least words: those
    that the student has not right, and those that it alone has."""
    ours_right_N, theirs_right_N = (figures_of_rows(one["answer"], labels_N)[:, 0] == 1 for one in (ours, theirs))
    both = zip(ours["answer"], theirs["answer"], strict=True)
    apart_N = np.asarray([1 - exact_and_f1(str(one), str(other))[1] for one, other in both])
    chosen = {
        "surest": heaviest_rows((apart_N > 0) & ~ours_right_N, apart_N, ids_N, examples),
        "corrected": heaviest_rows(ours_right_N & ~theirs_right_N, apart_N, ids_N, examples),
    }

    return {
        "counts": {
            **count_right(ours_right_N, theirs_right_N),
            "differ": int((apart_N > 0).sum()),
        },
        "examples": examples_of(chosen, ids_N, labels_N, (ours, theirs), str),
    }


ANSWERS = Answers(
    outputs=SPAN_LOGITS,
    decide=concluded_answers,
    metrics={"squad_f1": SQUAD_F1, "squad_exact": SQUAD_EXACT},
    dtype="str",
    agreement=mean_overlap,
    unchanged=same_answers,
    merge=refuse_merged_answers,
    guess=guess_no_answer,
    floor=Floor(
        fact="selection_squad_f1",
        least=least_squad_f1,
        description="the F1 of answering none to every question plus 5 points",
        interval=share_interval,
    ),
    read=read_answers,
    alone=analyse_answers,
    apart=compare_answers,
    kept=(FOUND_ANSWER, BEST_CANDIDATES),
)
