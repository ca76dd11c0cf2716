"""2:4 sparsity: of every four consecutive weights of a row, the two of smallest magnitude are 0.

Paper: Mishra et al. 2021, arXiv:2104.08378. Sparse tensor cores (NVIDIA GPUs of compute capability 8.0 and later) skip
such zeros: they read half of the values, and two bits for each that say which of the four it is. A row belongs to an
output, so groups lie along the inputs. The paper prunes a trained model at once, and trains it again under that mask;
a ramp between the dense model and the pattern is ours.

Shape letters in this file: O outputs and I inputs of a linear map.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP, LEFT_OF_GROUP = 4, 2
"""Weights of a group, and how many of them stay."""


def two_of_four(scores_OI: Tensor) -> Tensor:
    """Return the mask in which the two largest scores of each group stay; of equals, the first ones.

    Raises RuntimeError where the number of inputs is no multiple of four.
    """
    groups = scores_OI.detach().unflatten(-1, (-1, GROUP))
    largest_first = groups.argsort(dim=-1, descending=True, stable=True)
    mask = torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, largest_first[..., :LEFT_OF_GROUP], True)
    return mask.flatten(-2)
