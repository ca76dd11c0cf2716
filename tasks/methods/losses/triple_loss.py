"""DistilBERT's losses besides the softened predictions: masked words, and the direction of hidden states.

Paper: Sanh et al. 2019, "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter",
arXiv:1910.01108. Masked tokens are drawn as in Lample, Conneau 2019, XLM, arXiv:1901.07291: rare tokens more often.
Shape letters in this file: B batch, T tokens, N selected tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.errors import ModelError
from tasks.methods.losses.means import Loss, in_full, mean_of

SMOOTHING = 0.7  # exponent by which a token's frequency lowers its weight
SHOWN_AS_MASK, SHOWN_AS_IT_IS = 0.8, 0.1  # the other targets are replaced by random tokens


def direction_loss(student_ND: Tensor, teacher_ND: Tensor) -> Loss:
    """Return 1 - cosine, averaged over tokens."""
    if student_ND.shape != teacher_ND.shape:
        raise ModelError(
            f"student hidden states have shape {tuple(student_ND.shape)} and the teacher's {tuple(teacher_ND.shape)}; "
            "directions are compared at one width: give the student the teacher's, or set the weight of the "
            "direction to 0"
        )
    cosines_N = F.cosine_similarity(in_full(student_ND), in_full(teacher_ND.detach()), dim=-1)
    return mean_of((1 - cosines_N).sum(), len(cosines_N))


def masked_word_sum(student_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Return the cross entropy of the masked words, summed over those whose target is not -100."""
    return F.cross_entropy(in_full(student_NV), targets_N, ignore_index=-100, reduction="sum")


def rarity(counts_V: Tensor, specials: Sequence[int]) -> Tensor:
    """Return the sampling weight [V] of each token of the vocabulary; special tokens have weight 0."""
    weights_V = counts_V.double().clamp(min=1).pow(-SMOOTHING)
    weights_V[list(specials)] = 0.0
    return weights_V


def draw_targets(ids_BT: Tensor, mask_BT: Tensor, weights_V: Tensor, *, share: float) -> Tensor:
    """Return a boolean [B, T] of the tokens to be predicted: a share of the batch's tokens, drawn without replacement
    over the whole batch. All tensors are on the CPU."""
    chances = (weights_V[ids_BT] * mask_BT).flatten()
    wanted = min(int(torch.ceil(share * mask_BT.sum())), int((chances > 0).sum()))
    drawn = torch.zeros_like(chances, dtype=torch.bool)
    if wanted:
        drawn[torch.multinomial(chances, wanted, replacement=False)] = True
    return drawn.reshape(ids_BT.shape)


def masked_inputs(ids_BT: Tensor, drawn_BT: Tensor, *, mask_token: int, vocabulary: int) -> Tensor:
    """Return the input of the models: most targets masked, some unchanged, some replaced by another token."""
    drawn_here = torch.rand(ids_BT.shape), torch.randint(vocabulary, ids_BT.shape)
    dice_BT, other_BT = (values.to(ids_BT.device, non_blocking=True) for values in drawn_here)
    hidden_BT = torch.where(dice_BT < SHOWN_AS_MASK, torch.full_like(ids_BT, mask_token), other_BT)
    hidden_BT = torch.where(dice_BT >= 1 - SHOWN_AS_IT_IS, ids_BT, hidden_BT)
    return torch.where(drawn_BT, hidden_BT, ids_BT)
