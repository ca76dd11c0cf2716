"""Attention matching: the student's raw attention scores, before the softmax, copy the teacher's.

Paper: Jiao et al. 2019, "TinyBERT: Distilling BERT for Natural Language Understanding", arXiv:1909.10351.
Shape letters in this file: B batch, H heads, T tokens (first as query, then as key).
"""

from __future__ import annotations

from torch import Tensor

from tasks.errors import ModelError
from tasks.methods.losses.means import Loss, in_full, mean_of

PAPER_THRESHOLD = -1e2
"""The published code treats any score at or below this as masked."""


def attention_score_loss(
    student_BHTT: Tensor, teacher_BHTT: Tensor, mask_BT: Tensor, far_1TT: Tensor | None = None
) -> Loss:
    """Return the squared difference per score, averaged over heads and pairs of valid query and valid key.

    Pairs that are too ``far`` apart for a local layer are left out: their scores affect nothing.
    """
    _require_heads(student_BHTT, teacher_BHTT)
    if mask_BT.shape != (student_BHTT.shape[0], student_BHTT.shape[-1]):
        raise ModelError(
            f"the mask has shape {tuple(mask_BT.shape)} beside scores of shape {tuple(student_BHTT.shape)}; "
            "it must be [batch, tokens]"
        )
    kept_BT = mask_BT.bool()
    pair_B1TT = (kept_BT[:, :, None] & kept_BT[:, None, :])[:, None]
    if far_1TT is not None:
        pair_B1TT = pair_B1TT & ~far_1TT[:, None]
    gap_BHTT = (in_full(student_BHTT) - in_full(teacher_BHTT.detach())).masked_fill(~pair_B1TT, 0.0)
    return mean_of(gap_BHTT.square().sum(), pair_B1TT.sum() * student_BHTT.shape[1])


def attention_score_loss_paper(student: Tensor, teacher: Tensor) -> Loss:
    """Return the published code's mean over all elements; both inputs carry the additive mask, of any shape."""
    _require_heads(student, teacher)
    gap = _without_masked(student) - _without_masked(teacher.detach())
    return mean_of(gap.square().sum(), gap.numel())


def _without_masked(scores: Tensor) -> Tensor:
    return in_full(scores).masked_fill(scores <= PAPER_THRESHOLD, 0.0)


def _require_heads(student: Tensor, teacher: Tensor) -> None:
    if student.shape != teacher.shape:
        raise ModelError(
            f"student attention scores have shape {tuple(student.shape)} and the teacher's {tuple(teacher.shape)} "
            "[batch, heads, tokens, tokens]; give the student the teacher's number of heads, "
            "or switch the attention term off"
        )
