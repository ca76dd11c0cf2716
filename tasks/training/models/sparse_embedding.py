"""An embedding table that trains only the rows used by the text.

The table holds half of a small model's parameters, and a task's text uses a third of its rows. The others never get a
gradient; AdamW only decays them. Yet in every step a dense gradient is zeroed, included in the norm and added to the
moments for each of them. Here the active rows come first and are the parameter; the inactive rows store their pending
decay as one factor. The result equals training of the whole table, up to the order of the sums in the gradient's norm
and the rounding of that factor. Shape letters: V vocabulary, D width.
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
    """Replaces ``table`` while a model is trained. ``standing`` holds the number of active rows, and the pending decay
    factor of the others."""

    rows_VD: Tensor
    token_V: Tensor
    standing: Tensor

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.pad = table.padding_idx
        self.seen: np.ndarray | None = None
        self.register_buffer("rows_VD", table.weight.detach().clone())
        self.register_buffer("token_V", torch.arange(table.num_embeddings))
        self.register_buffer("standing", torch.tensor([0.0, 1.0], dtype=torch.float64))
        self.weight = nn.Parameter(self.rows_VD[:0])
        self.arrange()

    def arrange(self) -> None:
        """Recompute all attributes that depend on the saved ones."""
        self.row_V = torch.argsort(self.token_V)
        self.padding = None if self.pad is None else int(self.row_V[self.pad])
        self.weight.data = self.rows_VD[: int(self.standing[0])]
        self.gradient, self.touched = torch.zeros_like(self.weight.data), list[Tensor]()

    def forward(self, ids: Tensor) -> Tensor:
        """Look tokens up; in training, all of them must be active."""
        places = self.row_V[ids]
        found: Tensor = Lookup.apply(self.weight, places, self) if self.training else F.embedding(places, self.rows_VD)
        return found

    def collect(self, places: Tensor, gradient: Tensor) -> None:
        """Add up the gradient of the rows that a batch looked up. One gradient buffer serves all steps, because few of
        its rows are ever non-zero."""
        self.gradient.index_add_(0, places.flatten(), gradient.reshape(-1, gradient.shape[-1]).to(self.gradient.dtype))
        if self.padding is not None:
            self.gradient[self.padding] = 0
        self.touched.append(places.flatten())
        self.weight.grad = self.gradient

    def touched_rows(self) -> list[Tensor]:
        """Return the gradient of the rows that the last batch looked up, or nothing if it looked none up."""
        return [self.gradient.index_select(0, torch.cat(self.touched).unique())] if self.touched else []

    def after_step(self, decay: float) -> None:
        """Reset the gradient after a step that decayed the active rows by a factor, and multiply the pending decay of
        the others by it."""
        if self.touched:
            self.gradient[torch.cat(self.touched)] = 0
            self.standing[1] *= decay
        self.touched.clear()

    def activate(self, tokens: np.ndarray, pad: int, optimizer: torch.optim.Optimizer) -> None:
        """Activate the rows of ``tokens`` and of the padding token, with moments of zero, which is their value after
        steps without a gradient."""
        if tokens is self.seen:
            return
        self.seen, used = tokens, int(self.standing[0])
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
        """Apply the pending decay to the inactive rows."""
        self.rows_VD[int(self.standing[0]) :] *= float(self.standing[1])
        self.standing[1] = 1.0

    def write_whole(self, table_VD: Tensor) -> None:
        """Write the whole table, in the order of the vocabulary."""
        self.flush_decay()
        torch.index_select(self.rows_VD, 0, self.row_V, out=table_VD)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Save all but the parameter, which is a part of ``rows_VD``."""
        destination |= {prefix + name: getattr(self, name) for name in SAVED}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        if prefix + "weight" in state_dict:  # written by a distributed training, which trains the whole table
            self.rows_VD, self.token_V = state_dict[prefix + "weight"].clone(), torch.arange(len(self.token_V))
            self.standing = torch.tensor([len(self.token_V), 1.0], dtype=torch.float64)
        else:
            self.rows_VD, self.token_V, self.standing = (state_dict[prefix + name].clone() for name in SAVED)
        self.arrange()


class Lookup(torch.autograd.Function):
    """Looks rows up and sends their gradient to ``SparseEmbedding.collect``; autograd would otherwise create a gradient
    of the size of the table, mostly zeros, in every step."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, places: Tensor, table: SparseEmbedding) -> Tensor:
        """Return rows of ``weight``."""
        ctx.places, ctx.table = places, table
        return F.embedding(places, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        """Add the gradient to the table's."""
        ctx.table.collect(ctx.places, gradients[0])
        return None, None, None


@contextmanager
def used_rows_only(modules: nn.Module) -> Iterator[SparseEmbedding | None]:
    """Train only the used rows of a model's input embedding; yield None, and change nothing, for an embedding that is
    tied to an output or of another kind."""
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
    """Return the model among ``modules`` and its input embedding; None for a part that does not exist, or is not a
    single module."""
    model: Any = next((module for module in modules.modules() if hasattr(module, "get_input_embeddings")), None)
    try:
        return model, None if model is None else model.get_input_embeddings()
    except NotImplementedError:
        return model, None


def as_whole_tables(tensors: Mapping[str, Tensor], number: int = -1) -> dict[str, Tensor]:
    """Convert weights, or a checkpoint, of active rows into those of a whole table, whose number in the optimizer is
    ``number``. The given rows are changed."""
    whole = dict(tensors)
    for name in [name for name in tensors if name.endswith(".rows_VD")]:
        prefix = name.removesuffix("rows_VD")
        rows_VD, token_V, standing = (whole.pop(prefix + part) for part in SAVED)
        used = int(standing[0])
        rows_VD[used:] *= float(standing[1])
        whole[prefix + "weight"] = rows_VD[torch.argsort(token_V)]
        if name.startswith("weight."):  # the best weights so far contain a table too, but no moments
            for moment in [
                other for other in tensors if other.startswith(f"optimizer.{number}.") and tensors[other].ndim == 2
            ]:
                whole[moment] = torch.zeros_like(rows_VD)
                whole[moment][token_V[:used]] = tensors[moment]
    return whole
