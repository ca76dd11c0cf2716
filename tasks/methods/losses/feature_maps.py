"""Feature-map transfer: the output of each of the student's blocks copies that of the teacher's block.

Paper: Sun et al. 2020, "MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices", arXiv:2004.02984.
The published code compares normalised outputs, and means and variances of tokens beside them; it compares these with
all of the teacher's layers at once, where the one that is copied must be meant. Here it is that one.
Shape letters in this file: B batch, T tokens, D width of both models.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from tasks.errors import ModelError
from tasks.methods.losses.means import Loss, in_full, mean_of

EPS = 1e-12
"""Added to the variance by which an output is normalised."""


def feature_map_loss(student_BTD: Tensor, teacher_BTD: Tensor, mask_BT: Tensor) -> Loss:
    """Return the squared difference of the outputs at mean 0 and variance 1, per number of a valid token."""
    require_same_shape(student_BTD, teacher_BTD, mask_BT)
    ours, theirs = (F.layer_norm(in_full(one), one.shape[-1:], eps=EPS) for one in (student_BTD, teacher_BTD.detach()))
    return over_tokens((ours - theirs).square().sum(-1), mask_BT, student_BTD.shape[-1])


def token_mean_loss(student_BTD: Tensor, teacher_BTD: Tensor, mask_BT: Tensor) -> Loss:
    """Return the squared difference of the means over the width, per valid token."""
    require_same_shape(student_BTD, teacher_BTD, mask_BT)
    ours, theirs = (in_full(one).mean(-1) for one in (student_BTD, teacher_BTD.detach()))
    return over_tokens((ours - theirs).square(), mask_BT)


def token_variance_loss(student_BTD: Tensor, teacher_BTD: Tensor, mask_BT: Tensor) -> Loss:
    """Return the absolute difference of the variances over the width, per valid token."""
    require_same_shape(student_BTD, teacher_BTD, mask_BT)
    ours, theirs = (in_full(one).var(-1, correction=0) for one in (student_BTD, teacher_BTD.detach()))
    return over_tokens((ours - theirs).abs(), mask_BT)


def over_tokens(values_BT: Tensor, mask_BT: Tensor, numbers: int = 1) -> Loss:
    """Return the mean over valid tokens, of so many numbers each."""
    kept_BT = mask_BT.bool()
    return mean_of(values_BT.masked_fill(~kept_BT, 0.0).sum(), kept_BT.sum() * numbers)


def require_same_shape(student_BTD: Tensor, teacher_BTD: Tensor, mask_BT: Tensor) -> None:
    """Raise ModelError for outputs of different shapes, or a mask of others."""
    if student_BTD.shape != teacher_BTD.shape or mask_BT.shape != teacher_BTD.shape[:2]:
        raise ModelError(
            f"the student's outputs have shape {tuple(student_BTD.shape)}, the teacher's {tuple(teacher_BTD.shape)} "
            f"[batch, tokens, width] and the mask {tuple(mask_BT.shape)}; give the student the teacher's width, as "
            f"start: mobilebert does, or use method: layers"
        )


def steps_of_layers(steps: int, layers: int) -> list[int]:
    """Return how many steps each of the layers is transferred for, when they take turns; raise ModelError for fewer
    steps than layers."""
    if steps < layers:
        raise ModelError(
            f"{steps:,} steps are too few for {layers} layers that take turns; give the phase more steps, or set "
            f"transfer: joint"
        )
    ends = [round(steps * number / layers) for number in range(layers + 1)]
    return [end - start for start, end in zip(ends, ends[1:], strict=False)]
