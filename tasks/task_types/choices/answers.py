"""Predictions of options and their figures: accuracy, calibration over the options of a row, and disagreements.

Calibration: Guo et al. 2017, arXiv:1706.04599. Shape letters: N rows, K options of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import DataError
from tasks.metrics.intervals import share_interval
from tasks.metrics.of_classes import ACCURACY
from tasks.task_types.choices.options import place_in_text, place_text
from tasks.task_types.common_answers import LOGITS, count_right, examples_of, finite, heaviest_rows, reliability
from tasks.task_types.interfaces import Answers, Floor, ModelComparison
from tasks.task_types.types import OPTION_SCORES

LEAST_GAIN_OVER_CHANCE = 0.05
"""Minimum margin of a teacher's accuracy above that of guessing, as a share."""


def chosen_options(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the place of the chosen option of each row [N]. Of k options with equal scores, rows choose in turn, so
    that such rows count 1/k on average, as ARC's own score counts each (Clark et al. 2018, arXiv:1803.05457): the first
    would always be right where the right option has a column of its own."""
    found = list[str]()
    for row, scores_K1 in enumerate(outputs[LOGITS]):
        best = np.flatnonzero(scores_K1[:, 0] == scores_K1[:, 0].max())
        found.append(place_text(int(best[row % len(best)]) if len(best) else 0, len(scores_K1)))
    return np.asarray(found, dtype=str)


def same_options(before_N: np.ndarray, after_N: np.ndarray) -> np.ndarray:
    """Tell by row whether the chosen option is the same."""
    return before_N == after_N


def refuse_merged_options(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: options have no classes that could be merged."""
    raise DataError("a judging set of choices cannot merge classes; leave classes out of its section data.judge")


def guess_an_option(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the accuracy of drawing an option of each row, which is the mean of 1/K, and that of the predictions."""
    chance = float(np.mean([1 / place_in_text(str(label))[1] for label in labels_N]))
    return {"chance": chance, "selection_accuracy": ACCURACY(predictions_N, labels_N)}


def least_above_chance(facts: Mapping[str, float]) -> float:
    """Return the least accuracy of a teacher: clearly above that of guessing, and possible."""
    return min(0.999, facts["chance"] + LEAST_GAIN_OVER_CHANCE)


# --- error analysis ---------------------------------------------------------------------------------------------------


def read_choices(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the chosen option of each row, and its probability among the row's own options."""
    sure_N = []
    for scores_K1 in outputs[LOGITS]:
        odds_K = np.exp(scores_K1[:, 0].astype(np.float64) - scores_K1.max())
        sure_N.append(odds_K.max() / odds_K.sum())
    return {"answer": chosen_options(outputs), "certainty": np.asarray(sure_N, dtype=np.float64)}


def analyse_choices(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return the calibration, and the mean probability of a wrong choice."""
    right_N = model["answer"] == labels_N
    wrong_N = model["certainty"][~right_N]
    return {
        **reliability(model["certainty"], right_N, bins),
        "certainty_of_errors": finite(wrong_N.mean()) if len(wrong_N) else None,
    }


def compare_choices(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the rows in which student and teacher choose the right option, and select examples: confident
    disagreements, and rows that only the student has right."""
    ours_right_N, theirs_right_N = ours["answer"] == labels_N, theirs["answer"] == labels_N
    differ_N = ours["answer"] != theirs["answer"]
    surest_N = np.minimum(ours["certainty"], theirs["certainty"])
    chosen = {
        "surest": heaviest_rows(differ_N & ~ours_right_N, surest_N, ids_N, examples),
        "corrected": heaviest_rows(ours_right_N & differ_N, surest_N, ids_N, examples),
    }

    return {
        "counts": {**count_right(ours_right_N, theirs_right_N), "differ": int(differ_N.sum())},
        "examples": examples_of(chosen, ids_N, labels_N, (ours, theirs), str),
    }


ANSWERS = Answers(
    outputs=OPTION_SCORES,
    decide=chosen_options,
    metrics={"accuracy": ACCURACY},
    dtype="str",
    agreement=ACCURACY,
    unchanged=same_options,
    merge=refuse_merged_options,
    guess=guess_an_option,
    floor=Floor(
        fact="selection_accuracy",
        least=least_above_chance,
        description="guessing among the options plus 5 points",
        interval=share_interval,
    ),
    read=read_choices,
    alone=analyse_choices,
    apart=compare_choices,
)
