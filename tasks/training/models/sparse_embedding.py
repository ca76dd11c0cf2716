"""An embedding table of which only those rows are trained that the text uses.

The table holds half of a small model's numbers, and a task's text names a third of its rows. The others never get a
gradient; AdamW only decays them, and yet a dense gradient is zeroed, measured and worked into moments for each of them
at every step. Here the rows in use stand first and are the parameter; the rest waits, with the decay that is due as one
factor. What comes out is what training the whole table gives, up to the order of the sums in the gradient's norm and
the rounding of that factor. Shape letters: V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

SAVED = ("rows_VD", "token_V", "standing")


class SparseEmbedding(nn.Module):
    """Stands in for ``table`` while a model is trained. ``standing`` holds how many rows are in use, and the factor
    that the others are due."""

    rows_VD: Tensor
    token_V: Tensor
    standing: Tensor

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.pad, self.seen = table.padding_idx, None
        self.register_buffer("rows_VD", table.weight.detach().clone())
        self.register_buffer("token_V", torch.arange(table.num_embeddings))
        self.register_buffer("standing", torch.tensor([0.0, 1.0], dtype=torch.float64))
        self.weight = nn.Parameter(self.rows_VD[:0])
        self.arrange()

    def arrange(self) -> None:
        """Make everything else agree with what is saved."""
        self.row_V = torch.argsort(self.token_V)
        self.padding = None if self.pad is None else int(self.row_V[self.pad])
        self.weight.data = self.rows_VD[: int(self.standing[0])]
        self.gradient, self.touched = torch.zeros_like(self.weight.data), list[Tensor]()

    def forward(self, ids: Tensor) -> Tensor:
        """Look tokens up; only rows in use may be asked for in training."""
        places = self.row_V[ids]
        found: Tensor = Lookup.apply(self.weight, places, self) if self.training else F.embedding(places, self.rows_VD)
        return found

    def collect(self, places: Tensor, gradient: Tensor) -> None:
        """Add up the gradient of the rows that a batch looked up; there is one gradient for all steps, of which few
        rows are ever other than zero."""
        self.gradient.index_add_(0, places.flatten(), gradient.reshape(-1, gradient.shape[-1]).to(self.gradient.dtype))
        if self.padding is not None:
            self.gradient[self.padding] = 0
        self.touched.append(places.flatten())
        self.weight.grad = self.gradient

    def touched_rows(self) -> list[Tensor]:
        """Return the gradient of the rows that the last batch looked up, if it looked any up."""
        return [self.gradient.index_select(0, torch.cat(self.touched).unique())] if self.touched else []

    def after_step(self, decay: float) -> None:
        """Make the gradient zero again after a step that decayed the rows in use by a factor, and note it for those
        that wait."""
        if self.touched:
            self.gradient[torch.cat(self.touched)] = 0
            self.standing[1] *= decay
        self.touched.clear()

    def activate(self, tokens: np.ndarray, pad: int, optimizer: torch.optim.Optimizer) -> None:
        """Take the rows of tokens, and of what batches are padded with, into use, with moments of zero, as they would
        be by now."""
        if tokens is self.seen:
            return
        self.seen, used = tokens, int(self.standing[0])  # type: ignore[assignment]
        wanted = torch.zeros(len(self.token_V), dtype=torch.bool)
        wanted[torch.from_numpy(np.unique(tokens)).long()] = True
        wanted[[pad, pad if self.pad is None else self.pad]] = True
        waiting = self.token_V[used:].sort().values
        new, later = waiting[wanted[waiting]], waiting[~wanted[waiting]]
        order_V = torch.cat([self.token_V[:used], new, later])
        self.rows_VD = self.rows_VD[self.row_V[order_V]]
        self.rows_VD[used : used + len(new)] *= float(self.standing[1])
        self.token_V, self.standing[0] = order_V, used + len(new)
        self.arrange()
        for name, value in optimizer.state.get(self.weight, {}).items():
            if value.ndim == 2:
                optimizer.state[self.weight][name] = torch.cat([value, value.new_zeros(len(new), value.shape[1])])

    def flush_decay(self) -> None:
        """Decay the rows that wait by what they are due."""
        self.rows_VD[int(self.standing[0]) :] *= float(self.standing[1])
        self.standing[1] = 1.0

    def write_whole(self, table_VD: Tensor) -> None:
        """Fill a table in the order of the vocabulary."""
        self.flush_decay()
        torch.index_select(self.rows_VD, 0, self.row_V, out=table_VD)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """The parameter is a part of ``rows_VD``, which is saved anyway."""
        destination |= {prefix + name: getattr(self, name) for name in SAVED}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        if (
            prefix + "weight" in state_dict
        ):  # written by processes that shared the training, and trained the whole table
            self.rows_VD, self.token_V = state_dict[prefix + "weight"].clone(), torch.arange(len(self.token_V))
            self.standing = torch.tensor([len(self.token_V), 1.0], dtype=torch.float64)
        else:
            self.rows_VD, self.token_V, self.standing = (state_dict[prefix + name].clone() for name in SAVED)
        self.arrange()


class Lookup(torch.autograd.Function):
    """Looks rows up; their gradient goes to the table itself, which would else be handed one of its own size, full of
    zeros, at every step."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, places: Tensor, table: SparseEmbedding) -> Tensor:
        """Return rows of ``weight``."""
        ctx.places, ctx.table = places, table
        return F.embedding(places, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        """Hand the gradient to the table."""
        ctx.table.collect(ctx.places, gradients[0])
        return None, None, None


@contextmanager
def used_rows_only(modules: nn.Module) -> Iterator[SparseEmbedding | None]:
    """Train the input embedding of a model among ``modules`` by the rows in use; None where it is tied to an output, or
    of another kind."""
    model, table = input_table(modules)
    plain = (
        type(table) is nn.Embedding
        and table.max_norm is None
        and not table.scale_grad_by_freq
        and table.weight.requires_grad
    )
    if not plain or sum(value is table.weight for _, value in modules.named_parameters(remove_duplicate=False)) > 1:
        yield None
        return
    stand_in = SparseEmbedding(table)
    model.set_input_embeddings(stand_in)
    try:
        yield stand_in
    finally:
        stand_in.write_whole(table.weight.data)
        model.set_input_embeddings(table)


def input_table(modules: nn.Module) -> tuple[Any, Any]:
    """Return the model among ``modules`` and its input embedding; None for what is not there, or not in one piece."""
    model: Any = next((module for module in modules.modules() if hasattr(module, "get_input_embeddings")), None)
    try:
        return model, None if model is None else model.get_input_embeddings()
    except NotImplementedError:
        return model, None


def as_whole_tables(tensors: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """Turn a checkpoint of rows in use into one of a whole table, the optimizer's parameter ``number``, for processes
    that share the training."""
    whole = dict(tensors)
    for name in [name for name in tensors if name.endswith(".rows_VD")]:
        prefix = name.removesuffix("rows_VD")
        rows_VD, token_V, standing = (whole.pop(prefix + part) for part in SAVED)
        used = int(standing[0])
        rows_VD[used:] *= float(standing[1])
        whole[prefix + "weight"] = rows_VD[torch.argsort(token_V)]
        if name.startswith("weight."):  # the best weights so far have a table too, but no moments
            for moment in [
                other for other in tensors if other.startswith(f"optimizer.{number}.") and tensors[other].ndim == 2
            ]:
                whole[moment] = torch.zeros_like(rows_VD)
                whole[moment][token_V[:used]] = tensors[moment]
    return whole
