"""Self-attention relations: how tokens relate to one another by their queries, keys and values, copied from one layer
of the teacher.

Papers: Wang et al. 2020, "MiniLMv2: Multi-Head Self-Attention Relation Distillation", arXiv:2012.15828; the value
relation alone is that of Wang et al. 2020, MiniLM, arXiv:2002.10957. Widths and head counts of student and teacher may
differ: heads are joined and split anew. Shape letters in this file: B batch, H attention heads, T tokens, K head size,
A relation heads, R size of a relation head.
"""

from __future__ import annotations

from math import gcd

from torch import Tensor

from tasks.errors import ModelError
from tasks.methods.losses.attention_distributions import attention_distribution_loss
from tasks.methods.losses.means import Loss, in_full

MOST_HEADS = 48  # the paper's choice for teachers of the size of BERT-base


def relation_loss(student_BHTK: Tensor, teacher_BHTK: Tensor, mask_BT: Tensor, *, heads: int) -> Loss:
    """Return KL(teacher || student) between relations, in nats per relation head and valid token."""
    if mask_BT.shape != (student_BHTK.shape[0], student_BHTK.shape[2]) or mask_BT.shape != (
        teacher_BHTK.shape[0],
        teacher_BHTK.shape[2],
    ):
        raise ModelError(
            f"the mask has shape {tuple(mask_BT.shape)} beside states of shapes {tuple(student_BHTK.shape)} and "
            f"{tuple(teacher_BHTK.shape)}; "
            "it must be [batch, tokens] of both"
        )
    # A relation is an attention distribution with the same states as queries and keys.
    return attention_distribution_loss(
        relation_scores(student_BHTK, heads), relation_scores(teacher_BHTK, heads), mask_BT
    )


def relation_scores(states_BHTK: Tensor, heads: int) -> Tensor:
    """Return XX^T / sqrt(R) [B, A, T, T] for states X whose heads are joined and split into A."""
    batch, _, tokens, _ = states_BHTK.shape
    joined_BTD = states_BHTK.transpose(1, 2).reshape(batch, tokens, -1)
    require_heads(heads, joined_BTD.shape[-1])
    split_BATR = joined_BTD.reshape(batch, tokens, heads, -1).transpose(1, 2)
    return in_full(split_BATR @ split_BATR.transpose(2, 3)) * split_BATR.shape[-1] ** -0.5


def relation_heads(student_width: int, teacher_width: int) -> int:
    """Return the largest number of relation heads, at most 48, that divides both widths."""
    common = gcd(student_width, teacher_width)
    return max(heads for heads in range(1, MOST_HEADS + 1) if common % heads == 0)


def require_heads(heads: int, width: int) -> None:
    """Raise ModelError for a number of relation heads that does not divide the width."""
    if heads < 1 or width % heads:
        raise ModelError(
            f"{heads} relation heads do not divide the width {width}; choose a number that divides both widths, or "
            f"remove heads"
        )
