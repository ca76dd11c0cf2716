"""Texts that models have written, and their figures: BLEU, chrF and ROUGE, empty and repeating texts, and sources whose
texts became worst. Shape letter: N rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import DataError
from tasks.metrics.intervals import share_interval
from tasks.metrics.of_texts import (
    BLEU,
    CHRF,
    ROUGE_1,
    ROUGE_2,
    ROUGE_L,
    ROUGE_LSUM,
    chrf_of_sentences,
    references_in,
    signature_of_bleu,
)
from tasks.task_types.common_answers import examples_of, heaviest_rows
from tasks.task_types.interfaces import Answers, Floor, ModelComparison
from tasks.task_types.seq2seq.target import WRITTEN_OUTPUT, written_texts
from tasks.task_types.types import WRITTEN_TEXT

RUN, OFTEN = 3, 3
"""A text repeats itself if a run of so many words occurs so often."""
CLEARLY = 0.05
"""By how much the chrF of a sentence differs where a text is clearly better."""


def is_repeating(text: str) -> bool:
    """Tell whether a text says the same again and again."""
    words = text.split()
    runs = Counter(tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1))
    return max(runs.values(), default=0) >= OFTEN


def same_texts(before_N: np.ndarray, after_N: np.ndarray) -> np.ndarray:
    """Tell by row whether the same text was written."""
    return np.asarray(before_N == after_N)


def mean_likeness(ours_N: np.ndarray, theirs_N: np.ndarray) -> float:
    """Return by how much the texts of two models agree: their mean chrF beside each other, 1 for equal ones."""
    if not len(ours_N):
        return 1.0
    return float(np.where(ours_N == theirs_N, 1.0, chrf_of_sentences(ours_N, theirs_N)).mean())


def refuse_merged_targets(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: texts have no classes."""
    raise DataError("a judging set of texts cannot merge classes; leave classes out of its section data.judge")


def guess_one_text(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the chrF of the texts, and that of one right text in the place of all: the one of middle length."""
    if not len(labels_N):
        return {"majority": 0.0, "selection_chrf": 0.0}
    first_N = sorted((references_in(str(label))[0] for label in labels_N), key=lambda text: (len(text), text))
    always_N = np.full(len(labels_N), first_N[len(first_N) // 2])
    return {"majority": CHRF(always_N, labels_N), "selection_chrf": CHRF(predictions_N, labels_N)}


def least_chrf(facts: Mapping[str, float]) -> float:
    """Return the chrF of one text in the place of all."""
    return facts["majority"]


def analyse_texts(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return shares of empty and of repeating texts, the length of the texts as a share of the right ones', and the
    mean chrF of a sentence, also of its worst tenth; and how BLEU is computed."""
    texts = [str(text) for text in model["answer"]]
    if not texts:
        return dict.fromkeys(("empty", "repeating", "length", "sentence_chrf", "worst_chrf"), 0.0)
    alone_N = np.sort(chrf_of_sentences(model["answer"], labels_N))
    right = sum(len(references_in(str(label))[0].split()) for label in labels_N)
    return {
        "empty": sum(not text.strip() for text in texts) / len(texts),
        "repeating": sum(map(is_repeating, texts)) / len(texts),
        "length": sum(len(text.split()) for text in texts) / max(1, right),
        "sentence_chrf": float(alone_N.mean()),
        "worst_chrf": float(alone_N[: max(1, len(alone_N) // 10)].mean()),
        "signature": signature_of_bleu(labels_N),
    }


def compare_texts(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the sources of which one of the two writes clearly better, and those of which the student writes nothing or
    repeats itself; select those whose texts are furthest apart in chrF."""
    worse_N = chrf_of_sentences(theirs["answer"], labels_N) - chrf_of_sentences(ours["answer"], labels_N)
    differ_N = np.abs(worse_N) > CLEARLY
    chosen = {
        "surest": heaviest_rows(differ_N, worse_N, ids_N, examples),
        "corrected": heaviest_rows(differ_N, -worse_N, ids_N, examples),
    }
    return {
        "counts": {
            "rows": len(labels_N),
            "teacher_better": int((differ_N & (worse_N > 0)).sum()),
            "student_better": int((differ_N & (worse_N < 0)).sum()),
            "empty": sum(not str(text).strip() for text in ours["answer"]),
            "repeating": sum(is_repeating(str(text)) for text in ours["answer"]),
        },
        "gap": float(np.abs(worse_N).mean()) if len(labels_N) else None,
        "examples": examples_of(chosen, ids_N, labels_N, (ours, theirs), str),
    }


def texts_to_analyse(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the texts."""
    return {"answer": written_texts(outputs)}


ANSWERS = Answers(
    outputs=WRITTEN_TEXT,
    decide=written_texts,
    metrics={
        "bleu": BLEU,
        "chrf": CHRF,
        "rouge_1": ROUGE_1,
        "rouge_2": ROUGE_2,
        "rouge_l": ROUGE_L,
        "rouge_lsum": ROUGE_LSUM,
    },
    dtype="str",
    agreement=mean_likeness,
    unchanged=same_texts,
    merge=refuse_merged_targets,
    guess=guess_one_text,
    floor=Floor(
        fact="selection_chrf",
        least=least_chrf,
        description="the chrF of one right text in the place of all",
        interval=share_interval,
    ),
    read=texts_to_analyse,
    alone=analyse_texts,
    apart=compare_texts,
    kept=(WRITTEN_OUTPUT,),
)
