"""The rules of pretraining in ALBERT's way, and the formulae of LAMB, written a second time, and their cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from tests.methods.golden.case import Case, drawn


def direction(mean: ndarray, square: ndarray, weight: ndarray, weight_decay: float, eps: float) -> ndarray:
    """Mean over root of the mean square, and decay; moments are not corrected."""
    return mean / (np.sqrt(square) + eps) + weight_decay * weight


def trust_ratio(weight: ndarray, direction: ndarray) -> ndarray:
    """Euclidean norms, or 1."""
    ours, theirs = (np.sqrt(np.sum(values * values)) for values in (weight, direction))
    return ours / theirs if ours * theirs > 0 else np.float64(1)


def three_steps(
    matrix_OI: ndarray,
    zeros_OI: ndarray,
    bias_O: ndarray,
    gradients_SW: ndarray,
    *,
    lr: float,
    betas: Sequence[float],
    eps: float,
    weight_decay: float,
    grad_scale: float = 1.0,
) -> ndarray:
    """All weights after each step, [S, W]; the bias is neither decayed nor adapted."""
    first, second = matrix_OI.size, matrix_OI.size + zeros_OI.size
    given = np.split(gradients_SW / grad_scale, [first, second], axis=1)
    ways = zip(
        (matrix_OI, zeros_OI, bias_O), given, (weight_decay, weight_decay, 0.0), (True, True, False), strict=True
    )
    made = [steps_of(weight.flatten(), *way, lr=lr, betas=betas, eps=eps) for weight, *way in ways]
    return np.concatenate(made, axis=1)


def steps_of(
    weight_W: ndarray,
    gradients_SW: ndarray,
    weight_decay: float,
    adapted: bool,
    *,
    lr: float,
    betas: Sequence[float],
    eps: float,
) -> ndarray:
    """A tensor after each step; each moment is the sum of all gradients so far, which fade from step to step."""
    made = []
    for number in range(len(gradients_SW)):
        seen_SW, ages_S1 = gradients_SW[: number + 1], np.arange(number, -1, -1)[:, None]
        mean, square = (
            np.sum((1 - beta) * beta**ages_S1 * seen_SW**power, axis=0) for power, beta in enumerate(betas, start=1)
        )
        towards_W = direction(mean, square, weight_W, weight_decay, eps)
        weight_W = weight_W - lr * (trust_ratio(weight_W, towards_W) if adapted else 1) * towards_W
        made.append(weight_W)
    return np.stack(made)


def begins_word(pieces: list[str]) -> list[bool]:
    """All but those with two hashes."""
    return [piece[:2] != "##" for piece in pieces]


def words_between(begins_T: list[bool], first: int, end: int) -> list[list[int]]:
    """Words are gathered piece by piece."""
    words: list[list[int]] = []
    for place in range(first, end):
        if begins_T[place] or not words:
            words.append([place, place + 1])
        else:
            words[-1][1] = place + 1
    return words


def tokens_to_predict(length: int, share: float, most: int) -> int:
    """The nearest whole number between 1 and the most."""
    return int(np.clip(np.rint(length * share), 1, most))


def shares_of_lengths(longest: int) -> list[float]:
    """Harmonic, in whole parts of a common multiple."""
    parts = [math.factorial(longest) // length for length in range(1, longest + 1)]
    return [part / sum(parts) for part in parts]


def pieces(lengths_S: ndarray, documents_D2: ndarray, targets_N: ndarray) -> ndarray:
    """A piece grows until it is as long as its target and has two sentences; the last one ends with the document."""
    made: list[tuple[int, int]] = []
    for start, end in documents_D2:
        while end - start >= 2:
            stop = start + 2
            while stop < end and np.sum(lengths_S[start:stop]) < targets_N[len(made)]:
                stop += 1
            made.append((start, stop))
            start = stop
    return np.array(made)


def split_sentences(text: str) -> list[str]:
    """Read letter by letter."""
    made, start = [], 0
    for place, letter in enumerate(text):
        if letter not in ".!?":
            continue
        behind = text[place + 1 :].lstrip("\"'”’»)]")
        after = behind.lstrip().lstrip("\"'“‘«([")
        if behind != behind.lstrip() and after[:1].isupper():
            stop = len(text) - len(behind)
            made.append(text[start:stop].strip())
            start = stop
    return [*made, text[start:].strip()]


TEXTS = (
    "One. Two! Three? four.",
    'He said "No." Then (so they say.) "Yes," he said. 3 people came. Over at 3.5 percent. e.g. this',
    "no capital. none at all",
    "Dr. Who ends twice.",
    "Él vino. Ésta también!",
)


def optimizer_steps() -> list[Case]:
    """A matrix, one of zeros whose first gradient is 0 as well, and a bias."""
    gradients = drawn(113, 3, 12, reach=1)
    gradients[0, 6:10] = 0.0
    weights = {"matrix_OI": drawn(114, 2, 3), "zeros_OI": np.zeros((2, 2)), "bias_O": drawn(115, 2)}
    given, knobs = {**weights, "gradients_SW": gradients}, {"lr": 0.125, "betas": [0.875, 0.96875], "eps": 2.0**-20}
    return [
        Case("lamb.Lamb", "three steps", three_steps, given, {**knobs, "weight_decay": 0.25}),
        Case("lamb.Lamb", "scaled gradients", three_steps, given, {**knobs, "weight_decay": 0.0, "grad_scale": 8.0}),
    ]


def pretraining() -> list[Case]:
    """Moments of a step, words of three pieces, and documents of several sentences."""
    mean, weight = drawn(111, 3, 2), drawn(112, 3, 2)
    moments = {"mean": mean, "square": mean**2 + 1 / 16, "weight": weight}
    knobs: dict[str, Any] = {"weight_decay": 0.25, "eps": 2.0**-20}
    made = [Case("lamb.direction", "one step", direction, moments, knobs)]
    for name, values in (("a ratio", weight), ("no weight", 0 * weight)):
        made.append(Case("lamb.trust_ratio", name, trust_ratio, {"weight": values, "direction": mean}))
    made += optimizer_steps()
    split = ["[CLS]", "un", "##believ", "##able", "ends", "[SEP]", "##make", "of", "[SEP]"]
    spans = tuple({"begins_T": begins_word(split), "first": first, "end": end} for first, end in ((1, 5), (6, 8)))
    made += [
        Case("ngrams.begins_word", "pieces", begins_word, table=({"pieces": split},)),
        Case("ngrams.words_between", "segments", words_between, table=spans),
        Case(
            "ngrams.tokens_to_predict",
            "lengths",
            tokens_to_predict,
            table=tuple({"length": length, "share": 0.15, "most": 20} for length in (3, 9, 10, 30, 63, 128, 512)),
        ),
        Case("ngrams.shares_of_lengths", "longest", shares_of_lengths, table=({"longest": 1}, {"longest": 3})),
        Case("sentence_ends.split_sentences", "texts", split_sentences, table=tuple({"text": text} for text in TEXTS)),
    ]
    given = {
        "lengths_S": np.array([4, 4, 9, 1, 1, 20, 3, 3, 2, 5]),
        "documents_D2": np.array([[0, 5], [5, 10]]),
        "targets_N": np.array([8, 8, 8, 5, 30, 8, 8, 8, 8, 8, 8]),
    }
    return [*made, Case("sentence_order.pieces", "two documents", pieces, given)]
