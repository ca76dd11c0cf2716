"""Similarities of pairs of texts and their figures: the cosine of two vectors, beside the score that people gave.

A pair is two rows with one label, so that each row's prediction is the cosine of its pair: correlations are those of
pairs, and intervals draw both rows together, as rows of one group. Shape letters: N rows, P pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import DataError
from tasks.metrics.intervals import correlation_interval
from tasks.metrics.of_values import PEARSON, SPEARMAN, ranks
from tasks.task_types.common_answers import finite, heaviest_rows
from tasks.task_types.embedding.vectors import both_sides, of_both
from tasks.task_types.interfaces import Answers, Example, Floor, ModelComparison
from tasks.task_types.types import SENTENCE_VECTORS

LEAST_SPEARMAN = 0.3  # minimum correlation of a teacher
PLOTTED_PAIRS = 300
"""Points of a scatter plot; more of them would overlap without adding information."""


def cosines(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the cosine of each row's pair [N]."""
    first_PD, second_PD = both_sides(outputs)
    return of_both((first_PD * second_PD).sum(-1))


def close_cosines(before_N: np.ndarray, after_N: np.ndarray) -> np.ndarray:
    """Tell by row whether the cosine is the same, up to the arithmetic of another machine."""
    return np.isclose(before_N, after_N, rtol=0, atol=1e-3)


def refuse_merged_scores(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: similarities have no classes that could be merged."""
    raise DataError("a judging set of scored pairs cannot merge classes; leave classes out of its section data.judge")


def guess_by_nothing(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the correlation of a constant guess, which is 0, that of the cosines, and the number of pairs: each is two
    rows, of which an interval must not be told that they are independent."""
    correlation = SPEARMAN(predictions_N, labels_N)
    return {"majority": 0.0, "selection_correlation": correlation, "selection_count": len(labels_N) // 2}


def least_spearman(facts: Mapping[str, float]) -> float:
    """Return the least correlation of a teacher."""
    return LEAST_SPEARMAN


# --- error analysis ---------------------------------------------------------------------------------------------------


def read_cosines(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the cosines."""
    return {"cosine": cosines(outputs)}


def analyse_cosines(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return how far pairs stand from their true place, as a share of all places, and a sample of points (label,
    cosine)."""
    cosine_P, label_P = model["cosine"][::2], labels_N[::2]
    if not len(label_P):
        return {"misplaced": None, "mean_cosine": None, "points": []}
    sample = np.unique(np.linspace(0, len(label_P) - 1, min(PLOTTED_PAIRS, len(label_P))).round().astype(int))
    points = [[round(float(label_P[pair]), 4), round(float(cosine_P[pair]), 4)] for pair in sample]
    misplaced = np.abs(places(cosine_P) - places(label_P)).mean()
    return {"misplaced": finite(misplaced), "mean_cosine": finite(cosine_P.mean()), "points": points}


def places(values_P: np.ndarray) -> np.ndarray:
    """Return the rank of each pair as a share of the number of pairs."""
    return np.asarray(ranks(values_P) / max(1, len(values_P)))


def compare_cosines(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the rows whose pair student or teacher puts nearer to its true place, and select the pairs whose place
    changed most; both texts of a pair are rows, one after the other."""
    true_N, ours_N, theirs_N = (of_both(places(each[::2])) for each in (labels_N, ours["cosine"], theirs["cosine"]))
    apart_N, ours_off_N, theirs_off_N = ours_N - theirs_N, np.abs(ours_N - true_N), np.abs(theirs_N - true_N)
    counts = {
        "rows": len(labels_N),
        "student_nearer": int((ours_off_N < theirs_off_N).sum()),
        "teacher_nearer": int((theirs_off_N < ours_off_N).sum()),
    }

    def example(row: int) -> Example:
        return {
            "id": int(ids_N[row]),
            "label": float(labels_N[row]),
            "student": {"answer": float(ours["cosine"][row])},
            "teacher": {"answer": float(theirs["cosine"][row])},
        }

    def chosen(wanted_N: np.ndarray, weight_N: np.ndarray) -> list[Example]:
        first = heaviest_rows(wanted_N[::2], weight_N[::2], ids_N[::2], examples // 2)
        return [example(2 * pair + side) for pair in first for side in (0, 1)]

    return {
        "counts": counts,
        "gap": finite(np.abs(apart_N).mean()) if len(labels_N) else None,
        "examples": {
            "surest": chosen(apart_N != 0, np.abs(apart_N)),
            "corrected": chosen(ours_off_N < theirs_off_N, theirs_off_N - ours_off_N),
        },
    }


ANSWERS = Answers(
    outputs=SENTENCE_VECTORS,
    decide=cosines,
    metrics={"spearman": SPEARMAN, "pearson": PEARSON},
    dtype="float64",
    agreement=SPEARMAN,
    unchanged=close_cosines,
    merge=refuse_merged_scores,
    guess=guess_by_nothing,
    floor=Floor(
        fact="selection_correlation",
        least=least_spearman,
        description="the minimum correlation of an embedding teacher",
        interval=correlation_interval,
    ),
    read=read_cosines,
    alone=analyse_cosines,
    apart=compare_cosines,
)
