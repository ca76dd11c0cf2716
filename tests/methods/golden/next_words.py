"""Divergences of answers about words, whole and of the likeliest ones, written a second time in numpy, and their
cases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from tests.methods.golden.case import Case, pair
from tests.methods.golden.losses import class_loss, log_softmax

NOTHING = -1e4


def kl(first: ndarray, second: ndarray) -> ndarray:
    """KL of two rows of logarithms of probabilities."""
    return np.sum(np.exp(first) * (first - second), axis=-1)


def forward_kl(teacher_UC: ndarray, student_UC: ndarray) -> ndarray:
    """The student covers the teacher."""
    return kl(teacher_UC, student_UC)


def reverse_kl(teacher_UC: ndarray, student_UC: ndarray) -> ndarray:
    """The student stays within the teacher."""
    return kl(student_UC, teacher_UC)


def jensen_shannon(teacher_UC: ndarray, student_UC: ndarray) -> ndarray:
    """Both beside their mean."""
    high = np.maximum(teacher_UC.real, student_UC.real)
    middle = high + np.log((np.exp(teacher_UC - high) + np.exp(student_UC - high)) / 2)
    return (kl(teacher_UC, middle) + kl(student_UC, middle)) / 2


def skewed_jensen_shannon(teacher_UC: ndarray, student_UC: ndarray, *, beta: float) -> ndarray:
    """Both beside a mixture that is the teacher's by the share beta."""
    high = np.maximum(teacher_UC.real, student_UC.real)
    mixed = high + np.log(beta * np.exp(teacher_UC - high) + (1 - beta) * np.exp(student_UC - high))
    return beta * kl(teacher_UC, mixed) + (1 - beta) * kl(student_UC, mixed)


FORMULAS: dict[str, Any] = {
    "default": forward_kl,
    "reverse": reverse_kl,
    "jensen-shannon": jensen_shannon,
    "jensen-shannon(0.1)": lambda teacher_UC, student_UC: skewed_jensen_shannon(teacher_UC, student_UC, beta=0.1),
    "jensen-shannon(0.9)": lambda teacher_UC, student_UC: skewed_jensen_shannon(teacher_UC, student_UC, beta=0.9),
}


def in_parts(logits_UV: ndarray, ids_UK: ndarray, temperature: float) -> ndarray:
    """Logarithms of the probabilities of kept words and, last, of all others together."""
    share = np.exp(log_softmax(logits_UV / temperature))
    kept = np.take_along_axis(share, ids_UK, -1)
    others = share.copy()
    np.put_along_axis(others, ids_UK, 0, -1)
    rest = np.sum(others, axis=-1, keepdims=True)
    none = ids_UK.shape[1] == logits_UV.shape[1]
    return np.concatenate([np.log(kept), np.full(rest.shape, NOTHING) if none else np.log(rest)], axis=-1)


def rest_of(logp_UV: ndarray, ids_UK: ndarray) -> ndarray:
    """The last of those."""
    return in_parts(logp_UV, ids_UK, 1.0)[:, -1:]


def kept_words(logits_UV: ndarray, *, words: int, temperature: float) -> tuple[ndarray, ndarray]:
    """The likeliest words, and their part of the answer."""
    ids = np.argsort(-logits_UV, axis=-1, kind="stable")[:, :words]
    return ids, in_parts(logits_UV, ids, temperature)


def kept_words_loss(
    student_UV: ndarray, ids_UK: ndarray, teacher_UC: ndarray, *, temperature: float, formula: str = "default"
) -> ndarray:
    """T² times the divergence from kept answers, averaged over tokens."""
    ours = in_parts(student_UV, ids_UK, temperature)
    return temperature**2 * np.mean(FORMULAS[formula](teacher_UC, ours))


def all_words_loss(
    student_UV: ndarray, teacher_UV: ndarray, *, temperature: float, formula: str = "default"
) -> ndarray:
    """T² times the divergence from whole answers, averaged over tokens."""
    theirs, ours = log_softmax(teacher_UV / temperature), log_softmax(student_UV / temperature)
    return temperature**2 * np.mean(FORMULAS[formula](theirs, ours))


def next_word_loss(
    student_UV: ndarray,
    teacher_UC: ndarray,
    next_U: ndarray,
    *,
    ids_UK: ndarray | None = None,
    temperature: float,
    hard_weight: float,
    formula: str = "default",
) -> ndarray:
    """The same beside the words of the text."""
    knobs: dict[str, Any] = {"temperature": temperature, "formula": formula}
    if ids_UK is None:
        soft = all_words_loss(student_UV, teacher_UC, **knobs)
    else:
        soft = kept_words_loss(student_UV, ids_UK, teacher_UC, **knobs)
    return (1 - hard_weight) * soft + hard_weight * class_loss(student_UV, next_U)


def next_words() -> list[Case]:
    """Two tokens, a vocabulary of four, of which two words or all are kept."""
    student, teacher = pair(101, 2, 4)
    whole = {"teacher_UC": log_softmax(teacher), "student_UC": log_softmax(student)}
    three, learned = (forward_kl, reverse_kl, jensen_shannon), ("student_UV",)
    made = [Case(f"divergences.{one.__name__}", "four words", one, whole) for one in three]
    skewed = Case("divergences.skewed_jensen_shannon", "a tenth", skewed_jensen_shannon, whole, {"beta": 0.1})
    made.append(skewed)
    for formula in FORMULAS:
        knobs: dict[str, Any] = {"temperature": 2.0, "formula": formula}
        both = {"student_UV": student, "teacher_UV": teacher}
        made.append(Case("kept_words.all_words_loss", formula, all_words_loss, both, knobs, learned))
    for many in (2, 4):
        ids, logs = kept_words(teacher, words=many, temperature=2.0)
        inputs = {"student_UV": student, "ids_UK": ids, "teacher_UC": logs}
        rest = {"logp_UV": whole["student_UC"], "ids_UK": ids}
        made.append(Case("kept_words.rest_of", f"{many} words", rest_of, rest))
        for formula in FORMULAS:
            knobs = {"temperature": 2.0, "formula": formula}
            made.append(
                Case("kept_words.kept_words_loss", f"{formula}, {many}", kept_words_loss, inputs, knobs, learned)
            )
    knobs = {"temperature": 2.0, "hard_weight": 0.25}
    beside = {**inputs, "next_U": np.array([3, 0])}
    made.append(Case("kept_words.next_word_loss", "a quarter", next_word_loss, beside, knobs, learned))
    live = {"student_UV": student, "teacher_UC": teacher, "next_U": beside["next_U"]}
    made.append(Case("kept_words.next_word_loss", "a quarter, live", next_word_loss, live, knobs, learned))
    return made
