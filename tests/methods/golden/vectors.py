"""The losses on vectors of texts, written a second time, as those of ``losses.py``, and their cases.

Shape letters: B batch, D student width, E teacher width.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from tests.methods.golden.case import Case, drawn, pair
from tests.methods.golden.losses import length, log_softmax


def unit_vector_loss(student_BD: ndarray, teacher_BD: ndarray) -> ndarray:
    """Squared distance of vectors at unit length, averaged over texts."""
    return np.sum((unit(student_BD) - unit(teacher_BD)) ** 2) / len(student_BD)


def vector_loss_paper(student_BD: ndarray, teacher_BD: ndarray) -> ndarray:
    """Squared error of vectors as they are (arXiv:2004.09813), averaged over texts and dimensions."""
    return np.mean((student_BD - teacher_BD) ** 2)


def similarity_loss(student_BD: ndarray, teacher_BE: ndarray) -> ndarray:
    """KL of the teacher's shares among the other texts of the batch, averaged over texts (arXiv:2101.04731)."""
    ours, theirs = log_similarity_shares(student_BD), log_similarity_shares(teacher_BE)
    return np.sum(np.exp(theirs) * (theirs - ours)) / len(student_BD)


def log_similarity_shares(vectors_BD: ndarray) -> ndarray:
    """Logarithm of the softmax over cosines with the other texts, at temperature 0.05."""
    count, units = len(vectors_BD), unit(vectors_BD)
    others = [[other for other in range(count) if other != text] for text in range(count)]
    return log_softmax(np.stack([20 * units[text] @ units[others[text]].T for text in range(count)]))


def in_batch_loss(
    vectors_BD: ndarray, pair_B: ndarray, text_B: ndarray, is_second_B: ndarray, answers_B: ndarray
) -> ndarray:
    """Cross entropy of each query's passage among those of the batch that do not answer it (arXiv:1705.00652), on
    cosines times 20."""
    units, rows = unit(vectors_BD), range(len(pair_B))
    pairs = [
        (first, second)
        for first in rows
        for second in rows
        if pair_B[first] == pair_B[second] >= 0 and is_second_B[second] and not is_second_B[first]
    ]
    found = []
    for query, passage in pairs:
        answers = {text_B[p] for q, p in pairs if p == passage or (answers_B[p] and text_B[q] == text_B[query])}
        wrong = [p for _, p in pairs if text_B[p] not in answers]
        if answers_B[passage]:
            found.append(-log_softmax(20 * units[query] @ units[[passage, *wrong]].T)[0])
    return sum(found) / len(found)


def unit(vectors_BD: ndarray) -> ndarray:
    """Vectors at unit length."""
    return vectors_BD / length(vectors_BD)[:, None]


def vectors() -> list[Case]:
    """Vectors of texts, and similarities among them."""
    student, teacher = pair(73, 4, 3)
    both = {"student_BD": student, "teacher_BD": teacher}
    widths = {"student_BD": student, "teacher_BE": drawn(75, 4, 5)}
    # Five pairs and a text of none: the first two have one passage, the third and fourth one query, the fifth a passage
    # that does not answer it.
    in_pairs = {
        "vectors_BD": drawn(76, 11, 3),
        "pair_B": np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, -1]),
        "text_B": np.array([0, 1, 2, 1, 3, 4, 3, 5, 6, 7, 8]),
        "is_second_B": np.arange(11) % 2 == 1,
        "answers_B": ~np.isin(np.arange(11), (8, 9)),
    }
    return [
        Case("in_batch.in_batch_loss", "five pairs", in_batch_loss, in_pairs, {}, ("vectors_BD",)),
        Case("vectors.unit_vector_loss", "one width", unit_vector_loss, both, {}, ("student_BD",)),
        Case("vectors.vector_loss_paper", "one width", vector_loss_paper, both, {}, ("student_BD",)),
        Case("similarities.similarity_loss", "two widths", similarity_loss, widths, {}, ("student_BD",)),
        Case("similarities.log_similarity_shares", "four texts", log_similarity_shares, {"vectors_BD": student}),
    ]
