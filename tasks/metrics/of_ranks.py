"""Metrics of search: from the rank at which the passage of a query is found, 1 for the first place.

A prediction is a rank; the truth is above 0 where the passage answers the query, and other rows do not count. A query
with several passages is a unit for each of them. Where a prediction is a text of the scores of a query's texts, and the
truth one of their grades, a row is a ranked list (``of_lists.py``). Formulas: Jarvelin and Kekalainen 2002, nDCG (ACM
TOIS 20); Voorhees 1999, mean reciprocal rank (TREC-8). Shape letters: N rows.
"""

from __future__ import annotations

import numpy as np

from tasks.metrics.definition import SumMetric
from tasks.metrics.of_lists import gain_of_list, mean_of_lists, parts_of_lists, reciprocal_of_list

CUT = 10
"""Places of a list of results that its reader looks at."""


def gains(ranks_N: np.ndarray) -> np.ndarray:
    """Return the discounted gain of one passage: 1 at the first place, and 0 behind the tenth."""
    return np.where(ranks_N <= CUT, 1 / np.log2(1 + np.maximum(ranks_N, 1)), 0.0)


def reciprocals(ranks_N: np.ndarray) -> np.ndarray:
    """Return the reciprocal rank; 0 behind the tenth place."""
    return np.where(ranks_N <= CUT, 1 / np.maximum(ranks_N, 1), 0.0)


def found_by(ranks_N: np.ndarray, places: int) -> np.ndarray:
    """Return 1 where the passage is among the first places, else 0."""
    return (ranks_N <= places).astype(float)


def gain_parts(ranks_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return the gain and the count of each row that counts [N, 2]."""
    if ranks_N.dtype.kind == "U":
        return parts_of_lists(gain_of_list, ranks_N, truth_N)
    return of_counted_rows(gains(ranks_N), truth_N)


def reciprocal_parts(ranks_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return the reciprocal rank and the count of each row that counts [N, 2]."""
    if ranks_N.dtype.kind == "U":
        return parts_of_lists(reciprocal_of_list, ranks_N, truth_N)
    return of_counted_rows(reciprocals(ranks_N), truth_N)


def first_parts(ranks_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return whether the passage came first, and the count, of each row that counts [N, 2]."""
    return of_counted_rows(found_by(ranks_N, 1), truth_N)


def ten_parts(ranks_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return whether the passage was among ten, and the count, of each row that counts [N, 2]."""
    return of_counted_rows(found_by(ranks_N, 10), truth_N)


def hundred_parts(ranks_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return whether the passage was among a hundred, and the count, of each row that counts [N, 2]."""
    return of_counted_rows(found_by(ranks_N, 100), truth_N)


def of_counted_rows(values_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return values and counts of the rows that count; zeros for the others [N, 2]."""
    counts_N = (truth_N > 0).astype(float)
    return np.stack([values_N * counts_N, counts_N], -1)


NDCG_AT_10 = SumMetric("The discounted gain of the passage among ten, nDCG@10.", gain_parts, mean_of_lists)
MRR_AT_10 = SumMetric("The mean reciprocal rank of the passage among ten.", reciprocal_parts, mean_of_lists)
RECALL_AT_1 = SumMetric("The share of queries whose passage comes first.", first_parts, mean_of_lists)
RECALL_AT_10 = SumMetric("The share of queries whose passage is among ten.", ten_parts, mean_of_lists)
RECALL_AT_100 = SumMetric("The share of queries whose passage is among a hundred.", hundred_parts, mean_of_lists)
