"""Hidden-state matching: the student's token vectors, projected to the teacher's width, copy the teacher's.

Paper: Jiao et al. 2019, "TinyBERT: Distilling BERT for Natural Language Understanding", arXiv:1909.10351.
Shape letters in this file: B batch, T tokens, D student width, E teacher width.
"""

from __future__ import annotations

from torch import Tensor, nn

from tasks.errors import ModelError, RecipeError
from tasks.methods.losses.means import Loss, in_full, mean_of

KINDS = ("shared", "per_layer", "none")


def hidden_state_loss(
    student_BTD: Tensor, teacher_BTE: Tensor, mask_BT: Tensor, projection: nn.Module | None = None
) -> Loss:
    """Return the squared difference per element, averaged over valid tokens and the teacher's width."""
    if mask_BT.shape != teacher_BTE.shape[:2]:
        raise ModelError(
            f"the mask has shape {tuple(mask_BT.shape)} beside hidden states of shape {tuple(teacher_BTE.shape)}; "
            "it must be [batch, tokens]"
        )
    kept_BT1 = mask_BT.bool()[:, :, None]
    # several times faster than masked_fill on a CPU
    gap_BTE = _gap(student_BTD, teacher_BTE, projection) * kept_BT1.float()
    return mean_of(gap_BTE.square().sum(), kept_BT1.sum() * gap_BTE.shape[-1])


def hidden_state_loss_paper(student_BTD: Tensor, teacher_BTE: Tensor, projection: nn.Module | None = None) -> Loss:
    """Return the published code's mean over all elements, padding included."""
    gap_BTE = _gap(student_BTD, teacher_BTE, projection)
    return mean_of(gap_BTE.square().sum(), gap_BTE.numel())


class Projections(nn.Module):
    """The trainable maps from the student's width to the teacher's, one for all mapped states or one for each.

    They are used in training only and are never part of the exported student.
    """

    def __init__(self, count: int, student_width: int, teacher_width: int, kind: str = "shared") -> None:
        super().__init__()
        _require_widths(student_width, teacher_width, kind)
        self.count = count
        self.kind = kind
        size = {"shared": 1, "per_layer": count, "none": 0}[kind]
        self.linears = nn.ModuleList(_linear(student_width, teacher_width) for _ in range(size))

    def of(self, m: int) -> nn.Module:
        """Return the map of the m-th mapped state (an identity when the kind is ``none``)."""
        if not 0 <= m < self.count:
            raise ModelError(f"there is no mapped hidden state {m}; legal are 0 to {self.count - 1}")
        if self.kind == "none":
            return nn.Identity()
        return self.linears[0 if self.kind == "shared" else m]


def _linear(student_width: int, teacher_width: int) -> nn.Linear:
    # BERT's own initialisation, as in the published code.
    linear = nn.Linear(student_width, teacher_width)
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return linear


def _gap(student_BTD: Tensor, teacher_BTE: Tensor, projection: nn.Module | None) -> Tensor:
    projected_BTE = student_BTD if projection is None else projection(student_BTD)
    if projected_BTE.shape != teacher_BTE.shape:
        raise ModelError(
            f"student hidden states have shape {tuple(projected_BTE.shape)} and the teacher's "
            f"{tuple(teacher_BTE.shape)}; use a projection to the teacher's width and the same batch for both"
        )
    return in_full(projected_BTE) - in_full(teacher_BTE.detach())


def _require_widths(student_width: int, teacher_width: int, kind: str) -> None:
    if kind not in KINDS:
        raise RecipeError(f"unknown projection {kind!r}; choose one of {', '.join(KINDS)}")
    if kind == "none" and student_width != teacher_width:
        raise ModelError(
            f"projection 'none' needs equal widths, but the student has {student_width} and the teacher "
            f"{teacher_width}; choose 'shared' or 'per_layer', or a student of width {teacher_width}"
        )
