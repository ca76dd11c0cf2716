"""Layer similarity: how much of a layer is unchanged by fine-tuning, up to rotation and scaling of its units.

Paper: Kornblith et al. 2019, "Similarity of Neural Network Representations Revisited", arXiv:1905.00414 (linear CKA);
the cosine of the summary token before and after fine-tuning: Sajjad et al. 2020, "On the Effect of Dropping Layers of
Pre-trained Transformer Models", arXiv:2004.03844. Shape letters in this file: N rows (one token each), D and E widths,
B batch, T tokens, L states (the embeddings and every layer).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.errors import ModelError
from tasks.methods.layers.contribution import token_means_BL

CONSTANT = 1e-12  # a spread below this share of the sum is rounding error: such a layer carries no information


@dataclass(frozen=True)
class Moments:
    """Sums over rows, in float64, from which linear CKA is computed: they add up over batches, so that no run stores
    all its tokens."""

    rows: int
    first_D: Tensor
    second_E: Tensor
    first_DD: Tensor
    second_EE: Tensor
    both_DE: Tensor

    def __add__(self, other: Moments) -> Moments:
        """Return the sums over the rows of both."""
        return Moments(
            self.rows + other.rows,
            self.first_D + other.first_D,
            self.second_E + other.second_E,
            self.first_DD + other.first_DD,
            self.second_EE + other.second_EE,
            self.both_DE + other.both_DE,
        )


def moments_of(first_ND: Tensor, second_NE: Tensor) -> Moments:
    """Return the sums over some rows of two models."""
    if first_ND.shape[0] != second_NE.shape[0]:
        raise ModelError(
            f"two models are compared on the same rows, not on {first_ND.shape[0]} and {second_NE.shape[0]}; "
            f"tokenize the text once for both"
        )
    first_ND, second_NE = first_ND.double(), second_NE.double()
    return Moments(
        len(first_ND),
        first_ND.sum(0),
        second_NE.sum(0),
        first_ND.T @ first_ND,
        second_NE.T @ second_NE,
        first_ND.T @ second_NE,
    )


def linear_cka(first_ND: Tensor, second_NE: Tensor) -> float:
    """Return the linear CKA of two representations of the same rows: 1 if one is the other rotated, scaled and shifted,
    0 if they share nothing."""
    return linear_cka_of(moments_of(first_ND, second_NE))


def linear_cka_of(sums: Moments) -> float:
    """Return the linear CKA from sums over rows; 0 if one side does not vary."""
    first_DD = sums.first_DD - torch.outer(sums.first_D, sums.first_D) / sums.rows
    second_EE = sums.second_EE - torch.outer(sums.second_E, sums.second_E) / sums.rows
    both_DE = sums.both_DE - torch.outer(sums.first_D, sums.second_E) / sums.rows
    if _is_constant(first_DD, sums.first_DD) or _is_constant(second_EE, sums.second_EE):
        return 0.0
    return float(both_DE.square().sum() / (first_DD.norm() * second_EE.norm()))


def between_models_BL(
    before: Sequence[Tensor], after: Sequence[Tensor], mask_BT: Tensor, *, token: str = "cls"
) -> Tensor:
    """Return for each example and state the cosine between two models: of the first valid token, or the mean over valid
    tokens."""
    if len(before) != len(after) or any(one.shape != other.shape for one, other in zip(before, after, strict=True)):
        raise ModelError(
            "a cosine compares states of one shape, and these two models differ in depth or width; compare a model "
            "with its own fine-tuned version"
        )
    # Cosines of neighbouring states differ in the third decimal, which half precision cannot represent.
    per_state = [
        F.cosine_similarity(one.float(), other.float(), dim=-1) for one, other in zip(before, after, strict=True)
    ]
    return token_means_BL(torch.stack(per_state, dim=1), mask_BT, token=token)


def _is_constant(centred_DD: Tensor, summed_DD: Tensor) -> bool:
    return float(centred_DD.trace()) <= CONSTANT * max(1.0, float(summed_DD.trace()))
