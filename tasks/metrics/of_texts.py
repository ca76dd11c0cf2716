"""Metrics of texts that a model writes, beside one or several true ones: BLEU and chrF of all sentences together, and
ROUGE of each.

BLEU: Papineni et al. 2002, as sacreBLEU computes it (Post 2018, arXiv:1804.08771), with its own numbers of matches and
lengths. chrF: Popovic 2015. ROUGE: Lin 2004, with the words, the stems and the best of several true texts of
rouge-score. All are shares here: BLEU 0.35 is 35 in the literature. A true text stands beside others with
``BETWEEN_REFERENCES`` between them. Shape letters: N rows, K sums, W words of a text, V words of another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.metrics.definition import SumMetric

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as SacreMetric

BETWEEN_REFERENCES = "\x1e"
"""The sign between records, which no text contains."""
OF_VARYING_NUMBER = -1
"""The number of true texts that sacreBLEU states as ``var``."""
MOST_ORDER = 4
"""The longest runs of words that BLEU counts."""
SIGNS_OF_WORDS = re.compile(r"[^a-z0-9]+")
SHORT_WORD = 3
"""Words up to this length have no stem."""


def references_in(label: str) -> list[str]:
    """Return the true texts of a label."""
    return label.split(BETWEEN_REFERENCES)


# --- BLEU and chrF ----------------------------------------------------------------------------------------------------


@cache
def bleu_of_sacrebleu() -> SacreMetric:
    """Return sacreBLEU's BLEU with its defaults: cased, tokenizer 13a, exponential smoothing."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(max_ngram_order=MOST_ORDER)


@cache
def chrf_of_sacrebleu() -> SacreMetric:
    """Return sacreBLEU's chrF with its defaults: characters in runs of up to six, no words, recall twice."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF()


def signature_of_bleu(truth_N: np.ndarray) -> str:
    """Return how BLEU is computed here, as sacreBLEU states it: with the number of true texts beside which each
    sentence was judged, or ``var`` where it differs between sentences."""
    found, counts = bleu_of_sacrebleu(), {len(references_in(str(label))) for label in truth_N}
    found.num_refs = counts.pop() if len(counts) == 1 else OF_VARYING_NUMBER
    return str(found.get_signature())


def sums_of_sentences(
    of_program: Callable[[], SacreMetric], predictions_N: np.ndarray, truth_N: np.ndarray
) -> np.ndarray:
    """Return the numbers of each sentence whose sums a corpus score needs [N, K]."""
    program = of_program()
    both = zip(predictions_N, truth_N, strict=True)
    rows = [
        program._extract_corpus_statistics([str(ours)], [[one] for one in references_in(str(theirs))])[0]
        for ours, theirs in both
    ]
    return np.asarray(rows, dtype=np.float64)


def score_of_sums(of_program: Callable[[], SacreMetric], sums: np.ndarray, rows: Any) -> np.ndarray:
    """Return the corpus score of sums [..., K] as a share; 0 without rows."""
    program, flat = of_program(), np.atleast_2d(sums)
    flat = flat.reshape(-1, flat.shape[-1])
    found = [program._compute_score_from_stats(one.tolist()).score / 100 if one.any() else 0.0 for one in flat]
    return np.asarray(found).reshape(sums.shape[:-1])


def chrf_of_sentences(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return the chrF of each sentence alone, as a share [N]."""
    return score_of_sums(chrf_of_sacrebleu, sums_of_sentences(chrf_of_sacrebleu, predictions_N, truth_N), 1)


def bleu_of_sentence(prediction: str, references: Sequence[str]) -> float:
    """Return the BLEU of one sentence as a share, of the orders that it has words for, smoothed."""
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU(effective_order=True).sentence_score(prediction, list(references)).score) / 100


# --- ROUGE ------------------------------------------------------------------------------------------------------------


@cache
def stem_of(word: str) -> str:
    """Return the stem of a word (Porter 1980, with NLTK's extensions); short words are their own."""
    return word if len(word) <= SHORT_WORD else str(stemmer().stem(word))


@cache
def stemmer() -> Any:
    """Return the stemmer."""
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


def rouge_words(text: str) -> list[str]:
    """Return the stems of a text's words in lower case; letters and digits of ASCII alone make words."""
    return [stem_of(word) for word in SIGNS_OF_WORDS.sub(" ", text.lower()).split()]


def harmonic_mean(matches: float, ours: float, theirs: float) -> float:
    """Return F1 of matches, from the lengths of both."""
    return 2 * matches / (ours + theirs) if matches else 0.0


def rouge_n(order: int, ours: str, theirs: str) -> float:
    """Return F1 of runs of so many words."""
    one, other = (runs_of_words(rouge_words(text), order) for text in (ours, theirs))
    return harmonic_mean(sum((one & other).values()), one.total(), other.total())


def runs_of_words(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    """Return how often each run of so many words occurs."""
    return Counter(tuple(words[at : at + order]) for at in range(len(words) - order + 1))


def rouge_l(ours: str, theirs: str) -> float:
    """Return F1 of the longest sequence of words that both texts have in this order."""
    one, other = rouge_words(ours), rouge_words(theirs)
    return harmonic_mean(int(shared_lengths(one, other)[-1, -1]), len(one), len(other))


def rouge_lsum(ours: str, theirs: str) -> float:
    """Return F1 of the words that lines of the true text share in this order with any line of ours, each word counted
    as often as both texts have it."""
    mine, true = ([rouge_words(line) for line in text.split("\n") if line] for text in (ours, theirs))
    left_of_ours, left_of_theirs = (Counter(word for line in lines for word in line) for lines in (mine, true))
    lengths, matches = (left_of_ours.total(), left_of_theirs.total()), 0
    for line in true:
        there = set[int]().union(*(shared_places(line, other) for other in mine))
        for place in sorted(there):
            word = line[place]
            if left_of_ours[word] > 0 and left_of_theirs[word] > 0:
                matches += 1
                left_of_ours[word] -= 1
                left_of_theirs[word] -= 1
    return harmonic_mean(matches, *lengths)


def shared_lengths(ours: Sequence[str], theirs: Sequence[str]) -> np.ndarray:
    """Return the length of the longest common subsequence of each pair of beginnings [W + 1, V + 1]."""
    found = [[0] * (len(theirs) + 1)]
    for word in ours:
        above, row = found[-1], [0]
        for place, other in enumerate(theirs):
            row.append(above[place] + 1 if word == other else max(above[place + 1], row[-1]))
        found.append(row)
    return np.asarray(found)


def shared_places(ours: Sequence[str], theirs: Sequence[str]) -> set[int]:
    """Return the places in our words of one longest common subsequence; of several, the one that rouge-score takes."""
    lengths, found = shared_lengths(ours, theirs), set[int]()
    row, column = len(ours), len(theirs)
    while row and column:
        if ours[row - 1] == theirs[column - 1]:
            found.add(row - 1)
            row, column = row - 1, column - 1
        elif lengths[row, column - 1] > lengths[row - 1, column]:
            column -= 1
        else:
            row -= 1
    return found


def best_of_references(figure: Callable[[str, str], float], predictions: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return a figure of each row, the best over its true texts [N, 1]."""
    both = zip(predictions, truth, strict=True)
    found = [max(figure(str(ours), one) for one in references_in(str(theirs))) for ours, theirs in both]
    return np.asarray(found, dtype=np.float64).reshape(-1, 1)


def mean_of_rows(sums: np.ndarray, rows: Any) -> np.ndarray:
    """Return a mean over rows."""
    return np.asarray(sums[..., 0] / np.maximum(rows, 1))


BLEU = SumMetric(
    "sacreBLEU of all sentences together as a share: cased, tokenizer 13a, exponential smoothing.",
    partial(sums_of_sentences, bleu_of_sacrebleu),
    partial(score_of_sums, bleu_of_sacrebleu),
)
CHRF = SumMetric(
    "chrF of all sentences together as a share, as sacreBLEU computes it.",
    partial(sums_of_sentences, chrf_of_sacrebleu),
    partial(score_of_sums, chrf_of_sacrebleu),
)
ROUGE_1 = SumMetric(
    "F1 of stemmed words, the best of several true texts.",
    partial(best_of_references, partial(rouge_n, 1)),
    mean_of_rows,
)
ROUGE_2 = SumMetric(
    "F1 of pairs of stemmed words, the best of several true texts.",
    partial(best_of_references, partial(rouge_n, 2)),
    mean_of_rows,
)
ROUGE_L = SumMetric(
    "F1 of the longest common sequence of stemmed words, the best of several true texts.",
    partial(best_of_references, rouge_l),
    mean_of_rows,
)
ROUGE_LSUM = SumMetric(
    "F1 of common sequences of stemmed words, line by line; the best of several true texts.",
    partial(best_of_references, rouge_lsum),
    mean_of_rows,
)
