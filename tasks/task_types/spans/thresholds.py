"""The threshold of no answer, chosen on the selection rows: there is none where its score is above that of the best
answer by more than the threshold (Devlin et al. 2018, arXiv:1810.04805, section 4.3; Rajpurkar et al. 2018,
arXiv:1806.03822). Shape letter: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tasks.metrics.of_answers import NO_ANSWER, figures_of_rows
from tasks.task_types.spans.passage import ALWAYS_ANSWERS, BEST, BEST_CANDIDATES, margin_of


def threshold_of_none(outputs: Mapping[str, np.ndarray], labels_N: np.ndarray, metric: str) -> float:
    """Return the threshold with the best exact match or, by any other metric, F1; of equally good ones, the one nearest
    to 0. ``ALWAYS_ANSWERS`` where every row has an answer."""
    if not (labels_N == NO_ANSWER).any():
        return ALWAYS_ANSWERS
    margin_N, column = np.asarray([margin_of(row) for row in outputs[BEST_CANDIDATES]]), int(metric != "squad_exact")
    answered_N = figures_of_rows(outputs[BEST], labels_N)[:, column]
    none_N = figures_of_rows(np.full(len(labels_N), NO_ANSWER), labels_N)[:, column]
    known = np.unique(margin_N[np.isfinite(margin_N)])
    if not len(known):
        return 0.0
    cuts = np.concatenate([[known[0] - 1], (known[:-1] + known[1:]) / 2, [known[-1] + 1], [0.0]])
    worth = [float(np.where(margin_N > cut, none_N, answered_N).sum()) for cut in cuts]
    return float(cuts[np.lexsort((np.abs(cuts), -np.round(worth, 9)))[0]])
