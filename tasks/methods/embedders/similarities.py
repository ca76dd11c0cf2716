"""Similarities in the batch: texts that are similar for the teacher become similar for the student, whatever the widths
of the two.

Paper: Fang et al. 2021, "SEED: Self-supervised Distillation For Visual Representation", arXiv:2101.04731; here the
other texts are those of the batch, and none is kept in a queue. Shape letters in this file: B batch, D the student's
width, E the teacher's, O other texts.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.methods.losses.means import Loss, in_full, mean_of

TEMPERATURE = 0.05
"""Divides cosines, which span 2 at most; 20 is the usual scale of contrastive training on cosines."""


def similarity_loss(student_BD: Tensor, teacher_BE: Tensor) -> Loss:
    """Return KL(teacher || student) of the softmax over the cosines of each text with the others, averaged over texts;
    of a single text it is 0."""
    if len(student_BD) < 2:
        return mean_of(0.0 * in_full(student_BD).sum(), 0)
    ours_BO, theirs_BO = (log_similarity_shares(each) for each in (student_BD, teacher_BE.detach()))
    return mean_of((theirs_BO.exp() * (theirs_BO - ours_BO)).sum(), len(ours_BO))


def log_similarity_shares(vectors_BD: Tensor) -> Tensor:
    """Return the logarithm of the softmax over the cosines of each text with the O = B - 1 others [B, O]."""
    unit_BD = F.normalize(in_full(vectors_BD), dim=-1)
    others_BB = ~torch.eye(len(unit_BD), dtype=torch.bool, device=unit_BD.device)
    cosines_BO = (unit_BD @ unit_BD.T)[others_BB].view(len(unit_BD), -1)
    return (cosines_BO / TEMPERATURE).log_softmax(-1)
