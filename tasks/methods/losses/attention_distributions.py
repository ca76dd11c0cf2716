"""Attention distributions: each token of the student learns to attend where the teacher's token attends.

Paper: Wang et al. 2020, "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained
Transformers", arXiv:2002.10957. Shape letters in this file: B batch, H heads, T tokens (first as query, then as key).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tasks.errors import ModelError
from tasks.methods.losses.means import Loss, in_full, mean_of


def attention_distribution_loss(student_BHTT: Tensor, teacher_BHTT: Tensor, mask_BT: Tensor) -> Loss:
    """Return KL(teacher || student) of the softmax over valid keys of raw scores, in nats per head and valid token."""
    if student_BHTT.shape != teacher_BHTT.shape or mask_BT.shape != (student_BHTT.shape[0], student_BHTT.shape[-1]):
        raise ModelError(
            f"student attention scores have shape {tuple(student_BHTT.shape)}, the teacher's "
            f"{tuple(teacher_BHTT.shape)} [batch, heads, tokens, tokens] "
            f"and the mask {tuple(mask_BT.shape)}; give the student the teacher's number of heads, or use method: "
            f"relations"
        )
    kept_BT = mask_BT.bool()
    student_logp, teacher_logp = (log_shares(scores, kept_BT) for scores in (student_BHTT, teacher_BHTT.detach()))
    pair_B1TT = (kept_BT[:, :, None] & kept_BT[:, None, :])[:, None]
    # A padded key has probability 0 on both sides, so the difference of logarithms is undefined: it is masked, not
    # multiplied by 0.
    gap_BHTT = (teacher_logp - student_logp).masked_fill(~pair_B1TT, 0.0)
    return mean_of((teacher_logp.exp() * gap_BHTT).sum(), kept_BT.sum() * student_BHTT.shape[1])


def log_shares(scores_BHTT: Tensor, kept_BT: Tensor) -> Tensor:
    """Return the logarithm of the softmax over valid keys."""
    return in_full(scores_BHTT).masked_fill(~kept_BT[:, None, None, :], -torch.inf).log_softmax(-1)
