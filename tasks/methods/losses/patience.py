"""Patience: the student's summary token copies the teacher's, layer by layer, while the student learns the task.

Paper: Sun et al. 2019, "Patient Knowledge Distillation for BERT Model Compression", arXiv:1908.09355.
Shape letters in this file: B batch, L compared layers, D width.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from tasks.errors import ModelError, RecipeError
from tasks.methods.losses.means import Loss, in_full, mean_of

PATIENCE_MAPS = ("skip", "last")


def patience_loss(student_BLD: Tensor, teacher_BLD: Tensor, *, normalise: bool) -> Loss:
    """Return the mean squared difference per element; of vectors of unit length if ``normalise`` is set, as in the
    paper."""
    if student_BLD.shape != teacher_BLD.shape:
        raise ModelError(
            f"student summaries have shape {tuple(student_BLD.shape)} and the teacher's {tuple(teacher_BLD.shape)} "
            f"[batch, layers, width]; "
            "patience compares layers of one width: give the student the teacher's, or remove patience"
        )
    ours, theirs = in_full(student_BLD), in_full(teacher_BLD.detach())
    if normalise:
        ours, theirs = F.normalize(ours, dim=-1), F.normalize(theirs, dim=-1)
    return mean_of((ours - theirs).square().sum(), ours.numel())


def patience_layers(name: str, students: int, teachers: int) -> list[int]:
    """Return the teacher's hidden state that each hidden state 1, 2 … of the student copies; the student's last layer
    copies none."""
    if name not in PATIENCE_MAPS:
        raise RecipeError(f"unknown patience map {name!r}; choose one of {', '.join(PATIENCE_MAPS)}")
    if not 2 <= students <= teachers:
        raise ModelError(
            f"patience cannot compare a student of {students} layers with a teacher of {teachers}; give it 2 to "
            f"{teachers} layers"
        )
    if name == "last":
        return list(range(teachers - students + 1, teachers))
    return [layer * teachers // students for layer in range(1, students)]
