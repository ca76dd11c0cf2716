"""Likelihoods of documents and their figures: perplexities, bits of a byte, and documents of which two models think
otherwise. Shape letter: N documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import DataError
from tasks.metrics.of_words import (
    BITS_PER_BYTE,
    TOKEN_PERPLEXITY,
    WORD_PERPLEXITY,
    nats_and_counts,
    numbers_of_documents,
)
from tasks.task_types.common_answers import examples_of, heaviest_rows
from tasks.task_types.interfaces import Answers, Floor, ModelComparison
from tasks.task_types.next_words.document import LIKELIHOOD
from tasks.task_types.types import WORD_NATS

SPREAD = 1.0
"""Standard deviation of a document's nats of a word, at most, for the interval of their mean."""
MORE_THAN_ROUNDING = 1e-3
"""By how much nats of a token differ where they differ at all."""


# --- predictions ------------------------------------------------------------------------------------------------------


def concluded_likelihoods(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return nats and tokens of each document, as they were concluded from those of its tokens [N]."""
    return outputs[LIKELIHOOD]


def nats_of_token(predictions_N: np.ndarray) -> np.ndarray:
    """Return the mean nats of a token of each document [N]."""
    nats_N, tokens_N = numbers_of_documents(predictions_N, 2).T
    return np.asarray(nats_N / np.maximum(tokens_N, 1))


def close_likelihoods(before_N: np.ndarray, after_N: np.ndarray) -> np.ndarray:
    """Tell by document whether it is as likely as before, up to the arithmetic of another machine."""
    return np.isclose(nats_of_token(before_N), nats_of_token(after_N), rtol=0, atol=MORE_THAN_ROUNDING)


def mean_agreement(ours_N: np.ndarray, theirs_N: np.ndarray) -> float:
    """Return the mean ratio of the smaller perplexity of a document to the larger one."""
    return float(np.exp(-np.abs(nats_of_token(ours_N) - nats_of_token(theirs_N))).mean()) if len(ours_N) else 1.0


def refuse_merged_words(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: words have no classes."""
    raise DataError("a judging set of documents cannot merge classes; leave classes out of its section data.judge")


def guess_by_frequency(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return by how many nats a word is less surprising than where each word is as likely as it is frequent; and 0,
    which those frequencies have."""
    nats, _, words, _ = nats_and_counts(predictions_N, labels_N).sum(0)
    guessed = numbers_of_documents(labels_N, 3)[:, 2].sum()
    return {"majority": 0.0, "selection_nats_saved": float((guessed - nats) / max(1.0, words))}


def least_nats_saved(facts: Mapping[str, float]) -> float:
    """Return the least gain over frequencies of words."""
    return facts["majority"]


def interval_of_mean(value: float, rows: int) -> tuple[float, float]:
    """Return a wide 95 % interval of a mean over documents."""
    half = 1.96 * SPREAD / max(1, rows) ** 0.5
    return value - half, value + half


# --- error analysis ---------------------------------------------------------------------------------------------------


def read_likelihoods(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return nats and tokens of each document."""
    return {"answer": outputs[LIKELIHOOD]}


def analyse_likelihoods(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return the perplexity of a token, the bits of a byte, and the perplexity of a word in the least and the most
    surprising tenth of the documents; 0 without documents."""
    names = ("token_perplexity", "bits_per_byte", "easy_word_perplexity", "hard_word_perplexity")
    if not len(labels_N):
        return dict.fromkeys(names, 0.0)
    nats_N, _, words_N, _ = nats_and_counts(model["answer"], labels_N).T
    order, tenth = np.argsort(nats_N / words_N, kind="stable"), max(1, len(labels_N) // 10)
    ends = (WORD_PERPLEXITY(model["answer"][some], labels_N[some]) for some in (order[:tenth], order[-tenth:]))
    both = (TOKEN_PERPLEXITY(model["answer"], labels_N), BITS_PER_BYTE(model["answer"], labels_N))
    return dict(zip(names, (*both, *ends), strict=True))


def compare_likelihoods(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the documents that one of the two finds clearly likelier, and select those whose likelihoods are furthest
    apart."""
    worse_N = nats_of_token(ours["answer"]) - nats_of_token(theirs["answer"])
    differ_N = np.abs(worse_N) > MORE_THAN_ROUNDING
    chosen = {
        "surest": heaviest_rows(differ_N, worse_N, ids_N, examples),
        "corrected": heaviest_rows(differ_N, -worse_N, ids_N, examples),
    }
    return {
        "counts": {
            "rows": len(labels_N),
            "teacher_likelier": int((differ_N & (worse_N > 0)).sum()),
            "student_likelier": int((differ_N & (worse_N < 0)).sum()),
        },
        "gap": float(np.abs(worse_N).mean()) if len(labels_N) else None,
        "examples": examples_of(chosen, ids_N, labels_N, (ours, theirs), str),
    }


ANSWERS = Answers(
    outputs=WORD_NATS,
    decide=concluded_likelihoods,
    metrics={
        "word_perplexity": WORD_PERPLEXITY,
        "token_perplexity": TOKEN_PERPLEXITY,
        "bits_per_byte": BITS_PER_BYTE,
    },
    dtype="str",
    agreement=mean_agreement,
    unchanged=close_likelihoods,
    merge=refuse_merged_words,
    guess=guess_by_frequency,
    floor=Floor(
        fact="selection_nats_saved",
        least=least_nats_saved,
        description="nats of a word below those of the frequencies of words",
        interval=interval_of_mean,
    ),
    read=read_likelihoods,
    alone=analyse_likelihoods,
    apart=compare_likelihoods,
    kept=(LIKELIHOOD,),
)
