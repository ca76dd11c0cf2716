"""Metrics of ranked lists: the texts of a query with a score and a grade each, a text of numbers a row.

Formulas: Jarvelin and Kekalainen 2002, nDCG (ACM TOIS 20), with the gain 2^grade - 1 of Burges et al. 2005, which is
the grade itself where grades are 0 and 1; average precision as in trec_eval. Of equal scores, the text that stands
first in the row comes first. Queries without a relevant text do not count. Shape letters: N rows, K texts of a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.metrics.definition import SumMetric

LIST_PLACES = 10
"""Places of a list that its reader looks at."""


def numbers_in(text: Any) -> np.ndarray:
    """Return the numbers of a text [K]."""
    return np.asarray([float(number) for number in str(text).split()])


def order_of(scores: Any) -> np.ndarray:
    """Return the places of a row's texts, the best first [K]."""
    return np.argsort(-numbers_in(scores), kind="stable")


def gain_of_list(scores_K: np.ndarray, grades_K: np.ndarray) -> float:
    """Return the discounted gain of ten texts as a share of the best one; 0 without a relevant text."""
    gains_K = np.exp2(grades_K) - 1
    discounts = 1 / np.log2(np.arange(2, LIST_PLACES + 2))
    first, best = (gains_K[np.argsort(-by, kind="stable")][:LIST_PLACES] for by in (scores_K, gains_K))
    most = float(best @ discounts[: len(best)])
    return float(first @ discounts[: len(first)]) / most if most else 0.0


def reciprocal_of_list(scores_K: np.ndarray, grades_K: np.ndarray) -> float:
    """Return the reciprocal place of the first relevant text among ten; 0 if there is none."""
    relevant = np.flatnonzero(grades_K[np.argsort(-scores_K, kind="stable")][:LIST_PLACES] > 0)
    return 1 / (1 + float(relevant[0])) if len(relevant) else 0.0


def precision_of_list(scores_K: np.ndarray, grades_K: np.ndarray) -> float:
    """Return the mean precision at the places of the relevant texts; 0 if there is none."""
    relevant_K = grades_K[np.argsort(-scores_K, kind="stable")] > 0
    places = 1 + np.flatnonzero(relevant_K)
    return float((np.arange(1, len(places) + 1) / places).mean()) if len(places) else 0.0


def parts_of_lists(of_list: Any, predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return a figure and the count of each row with a relevant text; zeros for the others [N, 2]."""
    found = np.zeros((len(truth_N), 2))
    for row, (scores, grades) in enumerate(zip(predictions_N, truth_N, strict=True)):
        grades_K = numbers_in(grades)
        if grades_K.any():
            found[row] = of_list(numbers_in(scores), grades_K), 1.0
    return found


def precision_parts(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return the average precision and the count of each row [N, 2]."""
    return parts_of_lists(precision_of_list, predictions_N, truth_N)


def mean_of_lists(sums: np.ndarray, rows: Any) -> np.ndarray:
    """Return the sum of figures divided by their count; 0 where nothing counts."""
    return np.asarray(sums[..., 0] / np.maximum(sums[..., 1], 1))


AVERAGE_PRECISION = SumMetric(
    "The mean over queries of the precision at each relevant text, MAP.", precision_parts, mean_of_lists
)
