"""Matching vectors: a student's vector of a text becomes its teacher's.

Paper: Reimers and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation",
arXiv:2004.09813. Shape letters in this file: B batch, D width.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from tasks.methods.losses.means import Loss, in_full, mean_of


def unit_vector_loss(student_BD: Tensor, teacher_BD: Tensor) -> Loss:
    """Return the squared distance of the two vectors at unit length, 2 - 2 cosine, averaged over texts: only directions
    are compared in a search, so the length of a vector is not learned."""
    ours_BD, theirs_BD = (F.normalize(in_full(each), dim=-1) for each in (student_BD, teacher_BD.detach()))
    return mean_of((ours_BD - theirs_BD).square().sum(), len(ours_BD))


def vector_loss_paper(student_BD: Tensor, teacher_BD: Tensor) -> Loss:
    """Return the squared error of the vectors as they are, averaged over texts and dimensions, as in the paper."""
    error_BD = in_full(student_BD) - in_full(teacher_BD.detach())
    return mean_of(error_BD.square().sum(), error_BD.numel())
