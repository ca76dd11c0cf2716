"""Metrics of answers in a text: exact match and F1 of SQuAD, the better one where a question has several true answers.

Normalisation and definitions are those of SQuAD's own program (Rajpurkar et al. 2016, arXiv:1606.05250, and 2018,
arXiv:1806.03822): case, punctuation, articles and spaces do not matter, and F1 counts words. An answer stands here as
its places in the text and a digest of each of its words, so that a table of predictions has no text, as in "12 25 3f9a…
77b2…"; ``NO_ANSWER`` where there is none, and ``BETWEEN`` stands between several true ones. Shape letter: N rows.
"""

from __future__ import annotations

import re
from collections import Counter
from hashlib import sha256
from typing import Any

import numpy as np

from tasks.metrics.definition import SumMetric

NO_ANSWER, BETWEEN_ANSWERS = "none", "|"
WORD_DIGITS = 12
"""Hexadecimal digits of the digest of a word."""
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION_SIGNS = re.compile(r"[!-/:-@\[-`{-~]")
"""The signs of Python's ``string.punctuation``."""


def normal_words(text: str) -> list[str]:
    """Return the words of an answer that count: in lower case, without punctuation and articles."""
    return ARTICLES.sub(" ", PUNCTUATION_SIGNS.sub("", text.lower())).split()


def coded_answer(start: int, end: int, text: str) -> str:
    """Return an answer from its first character, the one after its last, and its text."""
    words = [sha256(word.encode()).hexdigest()[:WORD_DIGITS] for word in normal_words(text)]
    return " ".join([str(start), str(end), *words])


def span_of_answer(answer: str) -> tuple[int, int] | None:
    """Return the first character of an answer and the one after its last; None where there is no answer."""
    if answer == NO_ANSWER:
        return None
    start, end, *_ = answer.split()
    return int(start), int(end)


def digests_of_words(answer: str) -> list[str]:
    """Return the digests of the words of an answer."""
    return [] if answer == NO_ANSWER else answer.split()[2:]


def true_words(label: str) -> list[list[str]]:
    """Return the digests of the words of each true answer; an answer without words is none."""
    return [words for words in map(digests_of_words, label.split(BETWEEN_ANSWERS)) if words] or [[]]


def exact_and_f1(prediction: str, label: str) -> tuple[float, float]:
    """Return exact match and F1 of one row, each the best over its true answers. None is right only where there is
    none, as in SQuAD's program with a threshold: also not beside an answer of an article alone."""
    if prediction == NO_ANSWER:
        return float(label == NO_ANSWER), float(label == NO_ANSWER)
    ours, both = digests_of_words(prediction), list[tuple[float, float]]()
    for theirs in true_words(label):
        shared = sum((Counter(ours) & Counter(theirs)).values())
        f1 = 2 * shared / (len(ours) + len(theirs)) if ours and theirs else float(ours == theirs)
        both.append((float(ours == theirs), f1))
    return max(exact for exact, _ in both), max(f1 for _, f1 in both)


def exact_answers(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return by row whether the answer is a true one [N, 1]."""
    return figures_of_rows(predictions_N, truth_N)[:, :1]


def f1_of_answers(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return the F1 of each row [N, 1]."""
    return figures_of_rows(predictions_N, truth_N)[:, 1:]


def figures_of_rows(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return exact match and F1 by row [N, 2]."""
    both = zip(predictions_N, truth_N, strict=True)
    return np.asarray([exact_and_f1(str(ours), str(theirs)) for ours, theirs in both]).reshape(-1, 2)


def mean_of_sums(sums: np.ndarray, rows: Any) -> np.ndarray:
    """Return a mean over rows."""
    return np.asarray(sums[..., 0] / np.maximum(rows, 1))


SQUAD_F1 = SumMetric("F1 of the words of answers, as SQuAD counts it.", f1_of_answers, mean_of_sums)
SQUAD_EXACT = SumMetric("Share of rows whose answer is a true one, as SQuAD compares it.", exact_answers, mean_of_sums)
