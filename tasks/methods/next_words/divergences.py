"""Divergences of two distributions over words: where the student has to be likely, and where it must not be.

Forward KL(P || Q) of teacher P and student Q makes the student cover all that the teacher may say (Hinton et al. 2015,
arXiv:1503.02531); reverse KL(Q || P) keeps it from what the teacher would not say (Gu et al. 2023, MiniLLM,
arXiv:2306.08543); the generalised Jensen-Shannon divergence stands between them: beta KL(P || M) + (1 - beta)
KL(Q || M) with M = beta P + (1 - beta) Q (Agarwal et al. 2023, GKD, arXiv:2306.13649, equation 1), with beta one half
or one of the paper's other two. Divided by beta it is nearly forward KL where beta is small, and divided by 1 - beta
nearly reverse KL where it is large: as it stands, and as in the paper, it is then small, too. All take logarithms of
probabilities and return nats of each row. Shape letters: U rows, C outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

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


def skewed_jensen_shannon(teacher_UC: Tensor, student_UC: Tensor, *, beta: float) -> Tensor:
    """Return the generalised Jensen-Shannon divergence [U]: ``beta`` is the teacher's share of the mixture, above 0 and
    below 1; at most the entropy of that share."""
    middle_UC = torch.logaddexp(teacher_UC + math.log(beta), student_UC + math.log1p(-beta))
    return beta * forward_kl(teacher_UC, middle_UC) + (1 - beta) * forward_kl(student_UC, middle_UC)


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "default": forward_kl,
    "reverse": reverse_kl,
    "jensen-shannon": jensen_shannon,
    "jensen-shannon(0.1)": partial(skewed_jensen_shannon, beta=0.1),
    "jensen-shannon(0.9)": partial(skewed_jensen_shannon, beta=0.9),
}
"""By name; in brackets beta, which is one half without them."""


def divergence(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a divergence by its name as a formula. Raises RecipeError for an unknown one."""
    if name not in DIVERGENCES:
        raise RecipeError(f"unknown formula {name!r} for next words; choose one of {', '.join(DIVERGENCES)}")
    return DIVERGENCES[name]
