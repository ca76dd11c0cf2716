"""Metrics of ranked lists: the texts of a query with a score and a grade each, a text of numbers a row.

Formulas: Jarvelin and Kekalainen 2002, nDCG (ACM TOIS 20), with the gain 2^grade - 1 of Burges et al. 2005, which is
the grade itself where grades are 0 and 1; average precision as in trec_eval. Texts with equal scores stand in no order:
a figure is its mean over all of their orders (McSherry and Najork 2008, ECIR; scikit-learn's nDCG). So a model that
gives all texts one score has the figure of a random order, and not one that depends on the order of the table. Queries
without a relevant text do not count. Shape letters: N rows, K texts of a row.
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


def ties_of(scores_K: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the order of a row's texts, the best first, and by place the first place, from 0, and the number of the
    texts that have the score of the text there, each [K]."""
    order_K = np.argsort(-scores_K, kind="stable")
    starts = np.flatnonzero(np.diff(scores_K[order_K], prepend=np.nan) != 0)
    sizes = np.diff(starts, append=len(order_K))
    return order_K, np.repeat(starts, sizes), np.repeat(sizes, sizes)


def mean_of_ties(values_K: np.ndarray, firsts_K: np.ndarray) -> np.ndarray:
    """Return by place the mean of the values of its texts with equal scores [K]; values are in the order of places."""
    sums_K, counts_K = np.bincount(firsts_K, values_K), np.bincount(firsts_K)
    return np.asarray(sums_K[firsts_K] / counts_K[firsts_K])


def gain_of_list(scores_K: np.ndarray, grades_K: np.ndarray) -> float:
    """Return the discounted gain of ten texts as a share of the best one; 0 without a relevant text."""
    gains_K = np.exp2(grades_K) - 1
    discounts = 1 / np.log2(np.arange(2, LIST_PLACES + 2))
    order_K, firsts_K, _ = ties_of(scores_K)
    found, best = mean_of_ties(gains_K[order_K], firsts_K)[:LIST_PLACES], -np.sort(-gains_K)[:LIST_PLACES]
    most = float(best @ discounts[: len(best)])
    return float(found @ discounts[: len(found)]) / most if most else 0.0


def reciprocal_of_list(scores_K: np.ndarray, grades_K: np.ndarray) -> float:
    """Return the reciprocal place of the first relevant text among ten; 0 if there is none."""
    order_K, firsts_K, sizes_K = ties_of(scores_K)
    relevant_K = grades_K[order_K] > 0
    if not relevant_K.any():
        return 0.0
    first, many = (int(each_K[relevant_K.argmax()]) for each_K in (firsts_K, sizes_K))
    right = relevant_K[first : first + many].sum()
    # one after another of the tied texts is drawn, until one is relevant
    drawn_now = np.minimum(1.0, right / np.arange(many, 0, -1))
    none_before = np.concatenate([[1.0], np.cumprod(1 - drawn_now)[:-1]])
    places = first + 1 + np.arange(many)
    return float((drawn_now * none_before / places)[places <= LIST_PLACES].sum())


def precision_of_list(scores_K: np.ndarray, grades_K: np.ndarray) -> float:
    """Return the mean precision at the places of the relevant texts; 0 if there is none."""
    order_K, firsts_K, sizes_K = ties_of(scores_K)
    relevant_K, places_K = (grades_K[order_K] > 0).astype(float), np.arange(len(order_K))
    if not relevant_K.any():
        return 0.0
    share_K = mean_of_ties(relevant_K, firsts_K)
    right_K, before_K = share_K * sizes_K, (np.cumsum(relevant_K) - relevant_K)[firsts_K]
    # of a relevant text at a place: those above its ties, itself, and its share of the other relevant ties
    above_K = before_K + 1 + (places_K - firsts_K) * (right_K - 1) / np.maximum(sizes_K - 1, 1)
    return float((share_K * above_K / (1 + places_K)).sum() / relevant_K.sum())


def first_is_relevant(scores_K: np.ndarray, grades_K: np.ndarray) -> float:
    """Return 1 if the first text is relevant, else 0; of several texts with the highest score, the share that is."""
    return float((grades_K[scores_K == scores_K.max()] > 0).mean())


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
