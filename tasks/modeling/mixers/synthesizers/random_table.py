"""The random Synthesizer: logits are a table R [H, N, N] for each layer that does not depend on the text; learned, or
fixed as it was drawn.

Paper: Tay et al. 2021, arXiv:2005.00743, section 3.2. Cost a layer: T * T * D, without a product of queries and keys.
Shape letters: B batch, L tokens, P places, H heads, N longest input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tasks.modeling.mixers.synthesizers.synthesizer import Synthesizer, rows_at


def table_logits(table_HNN: Tensor, tokens: int, places_BL: Tensor | None = None) -> Tensor:
    """Return the part of a table for so many places [1, H, P, P], or its rows of tokens at these [B, H, L, P]."""
    return rows_at(table_HNN, places_BL, tokens)[..., :tokens]


class RandomTable(Synthesizer):
    """A learned table."""

    called = "synth-random"

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False, blend: bool = False) -> None:
        super().__init__(config, layer, causal=causal, blend=blend)
        self.table_HNN = nn.Parameter(torch.zeros(self.heads, self.longest, self.longest))

    def draw_weights(self, std: float) -> None:
        """Draw the table with deviation 1."""
        from transformers import initialization

        initialization.normal_(self.table_HNN, std=1.0)

    def logits(self, query_BHLK: Tensor | None, places_BL: Tensor | None, tokens: int) -> Tensor:
        """Return the table's part."""
        return table_logits(self.table_HNN, tokens, places_BL)


class FixedTable(Synthesizer):
    """A table that stays as it was drawn."""

    called = "synth-fixed"
    table_HNN: Tensor

    def __init__(self, config: Any, layer: int = 0, *, causal: bool = False, blend: bool = False) -> None:
        super().__init__(config, layer, causal=causal, blend=blend)
        self.register_buffer("table_HNN", torch.zeros(self.heads, self.longest, self.longest))

    def draw_weights(self, std: float) -> None:
        """Draw the table with deviation 1."""
        from transformers import initialization

        initialization.normal_(self.table_HNN, std=1.0)

    def logits(self, query_BHLK: Tensor | None, places_BL: Tensor | None, tokens: int) -> Tensor:
        """Return the table's part."""
        return table_logits(self.table_HNN, tokens, places_BL)
