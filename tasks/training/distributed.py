"""Several processes that share every step of a training, started by torchrun; with one process, nothing here has an
effect.

Each process computes a part of the batch, means are taken over all parts (``tasks/methods/losses/means.py``), and the
gradients of the trained modules are averaged; teachers are not synchronised. The results agree with those of one
process up to the order of floating-point sums and, with dropout, its random masks. Source: Li et al. 2020, PyTorch
Distributed, arXiv:2006.15704.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import numpy as np
import torch
from torch import Tensor, distributed, nn

from tasks.methods.losses.means import Loss
from tasks.training.data.epochs import Indices

ASKED = 10  # steps between two synchronised stop checks on GPUs
PATIENCE = timedelta(hours=1)  # limit of the wait for the main process, which alone scores and saves


class ProcessGroup:
    """The processes of one training; the main process, with ``rank`` 0, reports, scores and saves."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    @property
    def is_main_process(self) -> bool:
        """Whether this process reports, scores and saves."""
        return self.rank == 0

    def share(self, indices: Indices) -> Indices:
        """Return this process's part of a batch. Every process takes the whole of a batch that is too small to share,
        which does not change its mean."""
        rows_B, windows, together = indices.rows_B, indices.epoch.encoded.windows, indices.epoch.together
        if together is not None:
            row_B = np.searchsorted(together, rows_B, side="right")  # a loss needs both texts of a pair
        elif windows is None or windows.unit_S is not None:
            return replace(indices, rows_B=rows_B[self.rank :: self.size]) if len(rows_B) >= self.size else indices
        else:
            row_B = windows.row_F[rows_B]  # a loss needs all units of a row
        rows = np.unique(row_B)
        own = np.isin(row_B, rows[self.rank :: self.size])
        return replace(indices, rows_B=rows_B[own]) if len(rows) >= self.size else indices

    def seed(self, seed: int, step: int) -> None:
        """Seed dropout by process and step, so that processes differ and a resumed training draws the same masks as an
        uninterrupted one."""
        if self.size > 1:
            torch.manual_seed(hash((seed, step, self.rank)) % 2**63)

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of a value over all processes."""
        if self.size == 1:
            return value
        total = value.detach().clone().float()
        distributed.all_reduce(total)
        return total / self.size

    def agree(self, flag: bool, step: int, place: torch.device) -> bool:
        """Tell whether a flag is set in any process. On GPUs, which must wait for the answer, it is False without a
        check at most steps."""
        if self.size == 1:
            return flag
        return (place.type == "cpu" or step % ASKED == 0) and bool(
            self.mean(torch.tensor(float(flag), device=place)) > 0
        )

    def found_by_first(self, find: Callable[[], float], place: torch.device) -> float:
        """Compute a number in the main process and return it in all."""
        if self.size == 1:
            return find()
        known = torch.tensor(find() if self.is_main_process else 0.0, dtype=torch.float64, device=place)
        distributed.broadcast(known, 0)
        return float(known)

    def divisor(self, count: Tensor) -> Tensor:
        """Return the divisor of a process's sum with which the mean over processes is the mean over all elements."""
        total = count.detach().clone().to(torch.float32)
        distributed.all_reduce(total)
        return total.clamp(min=1) / self.size

    def synchronised(self, modules: nn.Module, loss: Callable[[Indices], Loss]) -> Callable[[Indices], Tensor]:
        """Return a function that computes this process's term of the mean loss, a scalar: the mean of the terms over
        all processes is the loss of the whole batch. Gradients with respect to ``modules`` are averaged over
        processes."""
        if self.size == 1:
            return lambda indices: loss(indices).mean()
        # A loss may not depend on all parts of a model, such as its pooler or its head.
        return nn.parallel.DistributedDataParallel(
            Step(modules, lambda indices: loss(indices).mean(self.divisor)),
            find_unused_parameters=True,
            broadcast_buffers=False,
        )


class Step(nn.Module):
    """The mean of a loss, together with the modules that it trains: the module that DistributedDataParallel wraps."""

    def __init__(self, modules: nn.Module, loss: Callable[[Indices], Tensor]) -> None:
        super().__init__()
        self.learned, self.loss = modules, loss

    def forward(self, indices: Indices) -> Tensor:
        """Return the loss of a part of a batch."""
        return self.loss(indices)


def join(place: torch.device) -> ProcessGroup:
    """Join the process group that torchrun started, or return a group of one process."""
    group = ProcessGroup()
    if group.size > 1 and not distributed.is_initialized():
        distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=PATIENCE)
    return group
