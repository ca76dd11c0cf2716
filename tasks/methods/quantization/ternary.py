"""Ternary weights: minus one, zero or one, times a scale for each block.

Papers: Li et al. 2016, "Ternary Weight Networks", arXiv:1605.04711 (the threshold); Zhang et al. 2020, "TernaryBERT:
Distillation-aware Ultra-low Bit BERT", arXiv:2009.12812. The paper has a scale for each matrix, and one for each row of
a table; ours has one for each block of the graph that serves it. The threshold is a share of the mean size of all
weights in the paper, and of those that are not 0 here, so that the zeros which fill up a block, and those of pruning,
do not lower it; without zeros both are the same. Shape letters: O outputs, I inputs.
"""

from __future__ import annotations

from torch import Tensor, nn

from tasks.methods.quantization.grids import as_blocks, from_blocks, straight_through

THRESHOLD = 0.7
"""Weights below this share of the mean size of those that are not 0 become 0."""


def ternary(values: Tensor) -> Tensor:
    """Round values to three, for each part along the last axis: 0, and plus or minus the mean size of what is above the
    threshold."""
    found = values.detach()
    sizes = found.abs()
    count = (sizes > 0).sum(-1, keepdim=True).clamp(min=1)
    above = sizes > THRESHOLD * sizes.sum(-1, keepdim=True) / count
    scale = (sizes * above).sum(-1, keepdim=True) / above.sum(-1, keepdim=True).clamp(min=1)
    return straight_through(values, found.sign() * above * scale)


class TernaryGrid(nn.Module):
    """The parametrization of a ternary matrix, with a scale for each block of an output's weights."""

    def forward(self, weight_OI: Tensor) -> Tensor:
        """Return the matrix on its grid."""
        return from_blocks(ternary(as_blocks(weight_OI)), weight_OI.shape[-1])
