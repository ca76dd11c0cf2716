"""A model that computes as its quantized graph will: weights, embeddings and what the linear maps read are rounded in
every pass, and learn as if they were not.

Methods: Zafrir et al. 2019, Q8BERT, arXiv:1910.06188, on the grids that ONNX Runtime serves. A graph in int8 finds the
ranges of states in a whole call, over all of its texts and their padding; here each text has its own, that of its
tokens alone, as if it were asked alone. Norms, softmax, GELU and products of two states stay as they are. A last map
that is also the table of embeddings is saved as the table, once, and the graph rounds its copy of the saved values: in
training, too, it is rounded to the table's grid first.
Shape letters: O outputs, I inputs, B batch, T tokens, V vocabulary, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tasks.methods.quantization.grids import (
    SHARING,
    OutputGrid,
    asymmetric,
    of_each_block,
    of_each_text,
    table_in_four_bits,
)
from tasks.methods.quantization.learned_steps import SMALLEST_STEP, LearnedGrid
from tasks.methods.quantization.ternary import TernaryGrid

LEARNING = 0.9
"""Share of a training in which learned steps move; weights settle on a fixed grid in the rest."""


def table_in_eight_bits(rows: Tensor, table_VD: Tensor) -> Tensor:
    """Round rows of a table to the range of all of it."""
    low, high = torch.aminmax(table_VD.detach())
    return asymmetric(rows, low, high)


class TableGrid(nn.Module):
    """The parametrization of a matrix [V, D] that is saved as a table of embeddings: on the grid of the table."""

    def __init__(self, served_as: str) -> None:
        super().__init__()
        self.served_as = served_as

    def forward(self, table_VD: Tensor) -> Tensor:
        """Return the matrix on the table's grid."""
        return rows_on_grid(table_VD, table_VD, self.served_as)


def rows_on_grid(rows: Tensor, table_VD: Tensor, served_as: str) -> Tensor:
    """Round rows of a table, or all of it, as a format of exports stores tables."""
    return table_in_eight_bits(rows, table_VD) if served_as == "int8" else table_in_four_bits(rows)


class FakeQuantization:
    """Rounds a model while it lasts; ``finish`` leaves the rounded weights in it."""

    def __init__(
        self, model: Any, served_as: str, codes: str, *, seven_bits: bool = False, trained: bool = True
    ) -> None:
        """Round a model as a format of exports does, with weights of ``codes``, a number of bits or ternary; steps of
        one that is not ``trained`` any more are those of the least error."""
        self.served_as, self.codes, self.seven_bits, self.trained = served_as, codes, seven_bits, trained
        self.maps: list[Any] = list(linear_maps(model, served_as))
        self.kept: list[Tensor] = []
        self.tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
        self.tied = [one for one in self.maps if any(one.weight is table.weight for table in self.tables)]
        self.mask_BT: Tensor | None = None
        for one in self.maps:
            for grid in self.grids_of(one):
                parametrize.register_parametrization(one, "weight", grid)
        self.hooks = [model.register_forward_pre_hook(self.see_mask, with_kwargs=True)]
        self.hooks += [one.register_forward_pre_hook(self.round_inputs) for one in self.maps]
        self.hooks += [one.register_forward_hook(self.round_rows) for one in self.tables]

    def grids_of(self, one: nn.Linear) -> list[nn.Module]:
        """Return the grids to which a map is rounded, one after the other: first the table's where it is one. A graph
        in blocks keeps that grid, whose blocks are its own, and one in eight bits rounds each output again."""
        if one not in self.tied:
            return [self.grid_of(one.weight)]
        again = [] if self.served_as == "four-bit" else [self.grid_of(one.weight)]
        return [TableGrid(self.served_as), *again]

    def grid_of(self, weight_OI: Tensor) -> nn.Module:
        """Return the grid of a matrix."""
        if self.served_as != "four-bit":
            return OutputGrid(64 if self.seven_bits else 127)
        if self.codes == "ternary":
            return TernaryGrid()
        return LearnedGrid(weight_OI, int(self.codes), nearest=not self.trained)

    def see_mask(self, model: nn.Module, given: Any, named: dict[str, Tensor]) -> None:
        """Learn which tokens of a batch are padding."""
        self.mask_BT = named.get("attention_mask")

    def round_inputs(self, module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        """Round what a linear map reads."""
        if self.served_as == "four-bit":
            return (of_each_block(given[0]),)
        return (of_each_text(given[0], self.mask_BT),)

    def round_rows(self, module: Any, given: Any, rows: Tensor) -> Tensor:
        """Round what is looked up in a table."""
        return rows_on_grid(rows, module.weight, self.served_as)

    @property
    def learned_steps(self) -> list[nn.Parameter]:
        """The steps that learn."""
        grids = [one.parametrizations.weight[0] for one in self.maps]
        return [grid.step for grid in grids if isinstance(grid, LearnedGrid)]

    def begin(self, step: int, total: int) -> None:
        """Hold the steps at the values that they have, once so few steps of training are left."""
        if step >= LEARNING * total and not self.kept:
            self.kept = [one.detach().clone() for one in self.learned_steps]

    def after_step(self, step: int) -> None:
        """Keep steps above 0, and those that are held at their values."""
        for one in self.learned_steps:
            one.clamp_(min=SMALLEST_STEP)
        for one, value in zip(self.learned_steps, self.kept, strict=False):
            one.copy_(value)

    def finish(self) -> None:
        """Write the rounded weights and tables into the model, and round nothing any more."""
        for hook in self.hooks:
            hook.remove()
        for one in self.maps:  # one that is also a table stays as it was trained, and is rounded as the table
            parametrize.remove_parametrizations(one, "weight", leave_parametrized=one not in self.tied)
        with torch.no_grad():
            for table in self.tables:
                table.weight.copy_(rows_on_grid(table.weight, table.weight, self.served_as))


def linear_maps(model: Any, format_: str) -> list[nn.Linear]:
    """Return the linear maps that a format quantizes, each once: a head that is narrower than a block stays in float32
    where weights have blocks."""
    found = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return [one for one in found if format_ != "four-bit" or one.out_features >= SHARING]
