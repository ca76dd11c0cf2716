"""Ranks of passages and their figures: each query is compared with all passages of a split, by the cosine of vectors.

A query and its passage are two rows, and the rank is the prediction of both; intervals draw rows by groups, in which
queries of one passage stand together. Equal texts have one vector. Of a query with several passages, each is ranked
among those of other queries (filtered ranks, Bordes et al. 2013, TransE). The search is exact.

The texts themselves are not known here, so different texts with one vector look like one text. Where both texts of
several pairs do, the model cannot tell these pairs apart, and each is ranked behind the others: a pair that stands k
times in a table has rank k at best, so repeated pairs should be removed. Different passages with one vector, asked for
by queries with different ones, count as one passage. Shape letters: N rows, P pairs, D width, U different passages, Q
different queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import DataError
from tasks.metrics.intervals import share_interval
from tasks.metrics.of_ranks import MRR_AT_10, NDCG_AT_10, RECALL_AT_1, RECALL_AT_10, RECALL_AT_100
from tasks.task_types.common_answers import finite, heaviest_rows
from tasks.task_types.embedding.vectors import both_sides, of_both
from tasks.task_types.interfaces import Answers, Example, Floor, ModelComparison
from tasks.task_types.types import SENTENCE_VECTORS

LEAST_GAIN = 0.2  # minimum nDCG@10 of a teacher
QUERIES_AT_A_TIME = 1024
"""Queries that are compared with all passages at a time."""
SAME_VECTOR = 1e-5
"""Distance within which two vectors are of one text: sums in batches of other texts round differently."""


def passage_ranks(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the rank of each row's passage for its query [N], from 1; 0 where the text that comes first is the query
    itself, as in rows that bring a passage without a query (``rows.py``). Metrics take 0 for 1."""
    queries_PD, passages_PD = both_sides(outputs)
    if not len(queries_PD):
        return np.empty(0)
    query_P, passage_P = same_vectors(queries_PD), same_vectors(passages_PD)
    if len(query_P) > 1 and 1 in (len(np.unique(query_P)), len(np.unique(passage_P))):
        # a model whose texts all have one vector finds nothing: every order of the passages is as right as another
        return of_both(np.full(len(query_P), float(len(query_P))))
    alike_P = same_pairs(query_P, passage_P)
    firsts_U, passage_P = np.unique(passage_P, return_inverse=True)
    relevant = {(int(query), int(passage)) for query, passage in zip(query_P, passage_P, strict=True)}
    by_query: dict[int, list[int]] = {}
    for query, passage in relevant:
        by_query.setdefault(query, []).append(passage)
    ranks_P = np.empty(len(queries_PD))
    for start in range(0, len(queries_PD), QUERIES_AT_A_TIME):
        part = slice(start, start + QUERIES_AT_A_TIME)
        scores_PU = queries_PD[part] @ passages_PD[firsts_U].T
        own_P1 = np.take_along_axis(scores_PU, passage_P[part, None], 1)
        for place, query in enumerate(query_P[part]):
            scores_PU[place, by_query[int(query)]] = -np.inf
        ranks_P[part] = 1 + (scores_PU >= own_P1).sum(1)  # a passage that is found no sooner than another is behind it
    ranks_P += alike_P - 1
    is_itself_P = np.abs(queries_PD - passages_PD).max(-1) < SAME_VECTOR
    return of_both(np.where(is_itself_P & (ranks_P == 1), 0.0, ranks_P))


def same_pairs(query_P: np.ndarray, passage_P: np.ndarray) -> np.ndarray:
    """Return for each pair the number of pairs, itself included, both of whose vectors are equal to its own [P]."""
    both_P2 = np.stack([query_P, passage_P], -1)
    _, place_P, many = np.unique(both_P2, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(many[place_P.ravel()])


def same_vectors(vectors_PD: np.ndarray) -> np.ndarray:
    """Return for each vector the place of the first one that is equal to it, up to rounding [P]."""
    found_P = np.arange(len(vectors_PD))
    # Near vectors are neighbours in the order of one number; that of a fixed direction hardly ever ties by chance.
    along_P = vectors_PD @ np.random.default_rng(0).normal(size=vectors_PD.shape[1])
    order = np.argsort(along_P, kind="stable")
    width = SAME_VECTOR * np.sqrt(vectors_PD.shape[1]) * 10
    for place, here in enumerate(order):
        for there in order[place + 1 :]:
            if along_P[there] - along_P[here] > width:
                break
            if np.abs(vectors_PD[here] - vectors_PD[there]).max() < SAME_VECTOR:
                first, second = sorted((int(found_P[here]), int(found_P[there])))
                found_P[found_P == second] = first
    return found_P


def equal_ranks(ours_N: np.ndarray, theirs_N: np.ndarray) -> float:
    """Return the share of rows whose passage two models find at the same place; of queries that are their own passage
    both do."""
    searched_N = np.maximum(ours_N, theirs_N) > 0
    return float((ours_N == theirs_N)[searched_N].mean()) if searched_N.any() else 1.0


def refuse_merged_passages(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: passages have no classes that could be merged."""
    raise DataError("a judging set of queries cannot merge classes; leave classes out of its section data.judge")


def guess_by_chance(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the nDCG@10 of the ranks, that of a random order, which is almost 0 among many passages, and the number of
    queries: each is two rows, with its passage."""
    gain = NDCG_AT_10(predictions_N, labels_N)
    return {"majority": 0.0, "selection_gain": gain, "selection_count": len(labels_N) // 2}


def least_gain(facts: Mapping[str, float]) -> float:
    """Return the least nDCG@10 of a teacher."""
    return LEAST_GAIN


# --- error analysis ---------------------------------------------------------------------------------------------------


def read_ranks(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the ranks, from 1."""
    return {"rank": np.maximum(passage_ranks(outputs), 1.0)}


def analyse_ranks(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return the share of queries whose passage is not among ten, and the median rank."""
    rank_P = model["rank"][::2][labels_N[::2] > 0]
    if not len(rank_P):
        return {"missed": None, "median_rank": None}
    return {"missed": finite((rank_P > 10).mean()), "median_rank": finite(np.median(rank_P))}


def compare_ranks(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the rows whose passage student or teacher finds earlier, and select the queries whose rank changed most;
    query and passage are rows, one after the other."""
    ours_N, theirs_N = ours["rank"], theirs["rank"]
    counted_N = labels_N > 0
    lost_N = np.where(counted_N, np.log(ours_N) - np.log(theirs_N), 0.0)
    counts = {
        "rows": int(counted_N.sum()),
        "student_earlier": int((lost_N < 0).sum()),
        "teacher_earlier": int((lost_N > 0).sum()),
    }

    def example(row: int) -> Example:
        return {
            "id": int(ids_N[row]),
            "label": 1.0,
            "student": {"answer": float(ours_N[row])},
            "teacher": {"answer": float(theirs_N[row])},
        }

    def chosen(weight_N: np.ndarray) -> list[Example]:
        first = heaviest_rows(weight_N[::2] > 0, weight_N[::2], ids_N[::2], examples // 2)
        return [example(2 * pair + side) for pair in first for side in (0, 1)]

    return {
        "counts": counts,
        "gap": finite(np.abs(lost_N[counted_N]).mean()) if counted_N.any() else None,
        "examples": {"surest": chosen(lost_N), "corrected": chosen(-lost_N)},
    }


ANSWERS = Answers(
    outputs=SENTENCE_VECTORS,
    decide=passage_ranks,
    metrics={
        "ndcg_at_10": NDCG_AT_10,
        "mrr_at_10": MRR_AT_10,
        "recall_at_1": RECALL_AT_1,
        "recall_at_10": RECALL_AT_10,
        "recall_at_100": RECALL_AT_100,
    },
    dtype="float64",
    agreement=equal_ranks,
    unchanged=np.equal,
    merge=refuse_merged_passages,
    guess=guess_by_chance,
    floor=Floor(
        fact="selection_gain",
        least=least_gain,
        description="the minimum nDCG@10 of a teacher of retrieval",
        interval=share_interval,
    ),
    read=read_ranks,
    alone=analyse_ranks,
    apart=compare_ranks,
    among_all=True,
)
