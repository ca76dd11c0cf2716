"""Rankings and their figures: nDCG, reciprocal ranks and average precision of a query's texts, and queries whose order
changed. A prediction holds the scores of a query's texts. Shape letters: N rows, K texts of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import DataError
from tasks.metrics.intervals import share_interval
from tasks.metrics.of_lists import AVERAGE_PRECISION, first_is_relevant, gain_of_list, numbers_in, order_of
from tasks.metrics.of_ranks import MRR_AT_10, NDCG_AT_10
from tasks.task_types.common_answers import LOGITS, examples_of, finite, heaviest_rows
from tasks.task_types.interfaces import Answers, Floor, ModelComparison
from tasks.task_types.types import RELEVANCE_SCORES

LEAST_OVER_CHANCE = 0.05
"""Minimum margin of a teacher's nDCG@10 above that of a random order."""
SCORE_ROUNDING = 1e-3
"""Distance of scores within which two predictions are the same."""
ORDERS_DRAWN = 20
"""Random orders of every query, from whose mean gain the floor is taken."""


def scores_as_texts(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the scores of each row's texts, in the order of the row [N]."""
    found = [" ".join(f"{score:.9g}" for score in scores_K1[:, 0]) for scores_K1 in outputs[LOGITS]]
    return np.asarray(found, dtype=str)


def same_first(ours_N: np.ndarray, theirs_N: np.ndarray) -> float:
    """Return the share of queries for which two models put the same text first."""
    both = zip(ours_N, theirs_N, strict=True)
    return float(np.mean([order_of(one)[0] == order_of(other)[0] for one, other in both]))


def same_scores(before_N: np.ndarray, after_N: np.ndarray) -> np.ndarray:
    """Tell by row whether all scores are the same, up to rounding."""
    both = zip(before_N, after_N, strict=True)
    return np.asarray(
        [bool(np.allclose(numbers_in(one), numbers_in(other), atol=SCORE_ROUNDING)) for one, other in both]
    )


def refuse_merged_texts(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: texts have no classes that could be merged."""
    raise DataError("a judging set of queries cannot merge classes; leave classes out of its section data.judge")


def guess_an_order(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the nDCG@10 of random orders, and that of the predictions."""
    draw = np.random.default_rng(0)
    counted = [label for label in labels_N if numbers_in(label).any()]
    drawn = [gain_of_list(draw.random(len(numbers_in(one))), numbers_in(one)) for one in counted * ORDERS_DRAWN]
    return {"chance": float(np.mean(drawn)), "selection_gain": NDCG_AT_10(predictions_N, labels_N)}


def least_ranking(facts: Mapping[str, float]) -> float:
    """Return the least nDCG@10 of a teacher: clearly above that of a random order, and possible."""
    return min(0.999, facts["chance"] + LEAST_OVER_CHANCE)


# --- error analysis ---------------------------------------------------------------------------------------------------


def read_rankings(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the scores of each row's texts as a text, and their standard deviation in the row."""
    spread_N = [float(scores_K1.std()) for scores_K1 in outputs[LOGITS]]
    return {"answer": scores_as_texts(outputs), "spread": np.asarray(spread_N, dtype=np.float64)}


def gains_of(answer_N: np.ndarray, labels_N: np.ndarray) -> np.ndarray:
    """Return the nDCG@10 of each query [N]; 0 for one without a relevant text."""
    both = zip(answer_N, labels_N, strict=True)
    return np.asarray([gain_of_list(numbers_in(one), numbers_in(label)) for one, label in both], dtype=np.float64)


def analyse_rankings(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return the share of queries whose first text is not relevant, among those that have a relevant one, and the
    spread of a query's scores, whose scale no label fixes."""
    both = [(numbers_in(one), numbers_in(label)) for one, label in zip(model["answer"], labels_N, strict=True)]
    firsts = [first_is_relevant(scores_K, grades_K) for scores_K, grades_K in both if grades_K.any()]
    if not firsts:
        return {"wrong_first": None, "spread": None}
    return {"wrong_first": float(1 - np.mean(firsts)), "spread": finite(model["spread"].mean())}


def compare_rankings(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the queries that student or teacher rank better, and select those whose gain changed most."""
    ours_N, theirs_N = (gains_of(each["answer"], labels_N) for each in (ours, theirs))
    lost_N = theirs_N - ours_N
    chosen = {
        "surest": heaviest_rows(lost_N > 0, lost_N, ids_N, examples),
        "corrected": heaviest_rows(lost_N < 0, -lost_N, ids_N, examples),
    }

    counts = {
        "rows": len(labels_N),
        "student_better": int((lost_N < 0).sum()),
        "teacher_better": int((lost_N > 0).sum()),
    }
    gap = finite(np.abs(lost_N).mean()) if len(lost_N) else None
    listed = examples_of(chosen, ids_N, labels_N, (ours, theirs), str)
    return {"counts": counts, "gap": gap, "examples": listed}


ANSWERS = Answers(
    outputs=RELEVANCE_SCORES,
    decide=scores_as_texts,
    metrics={"ndcg_at_10": NDCG_AT_10, "mrr_at_10": MRR_AT_10, "average_precision": AVERAGE_PRECISION},
    dtype="str",
    agreement=same_first,
    unchanged=same_scores,
    merge=refuse_merged_texts,
    guess=guess_an_order,
    floor=Floor(
        fact="selection_gain",
        least=least_ranking,
        description="the nDCG@10 of a random order plus 5 points",
        interval=share_interval,
    ),
    read=read_rankings,
    alone=analyse_rankings,
    apart=compare_rankings,
)
