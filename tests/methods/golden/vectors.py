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


def unit(vectors_BD: ndarray) -> ndarray:
    """Vectors at unit length."""
    return vectors_BD / length(vectors_BD)[:, None]


def vectors() -> list[Case]:
    """Vectors of texts, and similarities among them."""
    student, teacher = pair(73, 4, 3)
    both = {"student_BD": student, "teacher_BD": teacher}
    widths = {"student_BD": student, "teacher_BE": drawn(75, 4, 5)}
    return [
        Case("vectors.unit_vector_loss", "one width", unit_vector_loss, both, {}, ("student_BD",)),
        Case("vectors.vector_loss_paper", "one width", vector_loss_paper, both, {}, ("student_BD",)),
        Case("similarities.similarity_loss", "two widths", similarity_loss, widths, {}, ("student_BD",)),
        Case("similarities.log_similarity_shares", "four texts", log_similarity_shares, {"vectors_BD": student}),
    ]
