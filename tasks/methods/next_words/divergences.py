"""Divergences of two distributions over words: where the student has to be likely, and where it must not be.

Forward KL(P || Q) of teacher P and student Q makes the student cover all that the teacher may say (Hinton et al. 2015,
arXiv:1503.02531); reverse KL(Q || P) keeps it from what the teacher would not say (Gu et al. 2023, MiniLLM,
arXiv:2306.08543); the generalised Jensen-Shannon divergence stands between them: beta KL(P || M) + (1 - beta)
KL(Q || M) with M = beta P + (1 - beta) Q (Agarwal et al. 2023, GKD, arXiv:2306.13649, equation 1), here with beta one
half. All take logarithms of probabilities and return nats of each row. Shape letters: U rows, C outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tasks.errors import RecipeError

HALF = 0.5


def forward_kl(teacher_UC: Tensor, student_UC: Tensor) -> Tensor:
    """Return KL(teacher || student) [U]."""
    return (teacher_UC.exp() * (teacher_UC - student_UC)).sum(-1)


def reverse_kl(teacher_UC: Tensor, student_UC: Tensor) -> Tensor:
    """Return KL(student || teacher) [U]."""
    return (student_UC.exp() * (student_UC - teacher_UC)).sum(-1)


def jensen_shannon(teacher_UC: Tensor, student_UC: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence with equal weights [U], at most the logarithm of 2."""
    middle_UC = torch.logaddexp(teacher_UC, student_UC) + math.log(HALF)
    return HALF * forward_kl(teacher_UC, middle_UC) + (1 - HALF) * forward_kl(student_UC, middle_UC)


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "default": forward_kl,
    "reverse": reverse_kl,
    "jensen-shannon": jensen_shannon,
}


def divergence(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a divergence by its name as a formula. Raises RecipeError for an unknown one."""
    if name not in DIVERGENCES:
        raise RecipeError(f"unknown formula {name!r} for next words; choose one of {', '.join(DIVERGENCES)}")
    return DIVERGENCES[name]
