"""Thresholds of labels: the probability above which a label applies, chosen on the selection rows.

For the mean F1 over labels, each label has the threshold with the best F1 of its own (Yang 2001, "A Study of
Thresholding Strategies for Text Categorization"; Lipton et al. 2014, arXiv:1402.1892). For F1 over all decisions, the
thresholds with the best F1 of all labels together: the largest ratio 2 TP / (predicted + true) is that λ for which the
best sum of 2 TP - λ (predicted + true) is 0, and for a given λ each label is chosen alone (Dinkelbach 1967, "On
Nonlinear Fractional Programming"). Of equally good thresholds, the one nearest to 0.5 is taken, and a label without a
row that has it stays at 0.5. Shape letters: N rows, C labels, K cuts of one label.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tasks.metrics.of_label_sets import members

HIGHEST = 0.999
"""A threshold is between 1 - this and this, so that its log-odds are finite."""
MOST_ROUNDS = 50
"""Dinkelbach's method ends after a few rounds; each raises λ."""


def log_odds(shares: np.ndarray) -> np.ndarray:
    """Return the log-odds of probabilities."""
    return np.asarray(np.log(shares) - np.log1p(-shares))


class Cuts:
    """The thresholds of one label between its rows, and 0.5, with the counts that each gives [K]."""

    def __init__(self, shares_N: np.ndarray, true_N: np.ndarray) -> None:
        known = np.unique(np.append(shares_N, [0.0, 1.0]))
        between = np.append((known[:-1] + known[1:]) / 2, 0.5)
        self.thresholds_K = np.unique(np.clip(between, 1 - HIGHEST, HIGHEST))
        self.true = int(true_N.sum())
        self.found_K, self.right_K = (above(each, self.thresholds_K) for each in (shares_N, shares_N[true_N]))

    def best(self, worth_K: np.ndarray) -> int:
        """Return the cut of the greatest worth; of several, the one nearest to 0.5."""
        return int(np.lexsort((np.abs(self.thresholds_K - 0.5), -np.round(worth_K, 12)))[0])


def above(shares: np.ndarray, thresholds_K: np.ndarray) -> np.ndarray:
    """Return how many of some probabilities are above each threshold [K]."""
    return np.asarray(len(shares) - np.searchsorted(np.sort(shares), thresholds_K, side="right"))


def best_by_label(cuts_C: list[Cuts]) -> list[int]:
    """Return for each label the cut with the best F1 of its own."""
    return [one.best(2 * one.right_K / np.maximum(one.found_K + one.true, 1)) for one in cuts_C]


def best_together(cuts_C: list[Cuts]) -> list[int]:
    """Return for each label the cut with which F1 over all labels is best."""
    chosen, ratio = best_by_label(cuts_C), 0.0
    for _ in range(MOST_ROUNDS):
        right = sum(2 * int(one.right_K[cut]) for one, cut in zip(cuts_C, chosen, strict=True))
        all_of = sum(int(one.found_K[cut]) + one.true for one, cut in zip(cuts_C, chosen, strict=True))
        found = right / max(all_of, 1)
        if found <= ratio + 1e-12:
            break
        ratio = found
        chosen = [one.best(2 * one.right_K - ratio * one.found_K) for one in cuts_C]
    return chosen


THRESHOLD_CHOICES: dict[str, Callable[[list[Cuts]], list[int]]] = {"label_macro_f1": best_by_label}
"""How thresholds are chosen, by the metric that decides; by F1 over all decisions for every other."""


def thresholds_of_sets(logits_NC: np.ndarray, sets_N: np.ndarray, metric: str) -> np.ndarray:
    """Return the threshold of each label [C], from log-odds and the sets of the same rows."""
    members_NC = members(sets_N, np.arange(logits_NC.shape[1])).T
    shares_NC = 1 / (1 + np.exp(-logits_NC.astype(np.float64)))
    found_C = np.full(shares_NC.shape[1], 0.5)
    having = [label for label in range(shares_NC.shape[1]) if members_NC[:, label].any()]
    cuts_C = [Cuts(shares_NC[:, label], members_NC[:, label]) for label in having]
    for label, one, cut in zip(having, cuts_C, THRESHOLD_CHOICES.get(metric, best_together)(cuts_C), strict=True):
        found_C[label] = one.thresholds_K[cut]
    return found_C
