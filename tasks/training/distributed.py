"""Several processes that share every step of a training, started by torchrun; where there is one process, everything
here does nothing.

Each takes a part of the batch, means are taken over all parts (``tasks/methods/losses/means.py``), and the gradients of
what learns are averaged; a teacher is no part of that. The results agree with one process's up to the order of
floating-point sums and, where there is dropout, its draw. Source: Li et al. 2020, PyTorch Distributed,
arXiv:2006.15704.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import torch
from torch import Tensor, distributed, nn

from tasks.methods.losses.means import Loss
from tasks.training.data.epochs import Indices

ASKED = 10  # steps between two questions to all processes on GPUs
PATIENCE = timedelta(hours=1)  # how long the others wait for the first process, which alone scores and saves


class ProcessGroup:
    """The processes of one training; ``rank`` 0 is the one that speaks, scores and saves."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

    @property
    def is_main_process(self) -> bool:
        """Whether this process is the one that is heard."""
        return self.rank == 0

    def share(self, indices: Indices) -> Indices:
        """Return this process's part of a batch; of a batch that is too small to share, everybody takes the whole,
        which leaves its mean as it is."""
        rows_B = indices.rows_B
        return replace(indices, rows_B=rows_B[self.rank :: self.size]) if len(rows_B) >= self.size else indices

    def seed(self, seed: int, step: int) -> None:
        """Draw dropout anew for each process and step, so that processes differ and a resumed training draws what it
        would have drawn."""
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
        """Tell whether a flag is up in any process; asked at some steps only, because a GPU must stand still for an
        answer."""
        if self.size == 1:
            return flag
        return (place.type == "cpu" or step % ASKED == 0) and bool(
            self.mean(torch.tensor(float(flag), device=place)) > 0
        )

    def found_by_first(self, find: Callable[[], float], place: torch.device) -> float:
        """Let the first process find a number, and tell it to all."""
        if self.size == 1:
            return find()
        known = torch.tensor(find() if self.is_main_process else 0.0, dtype=torch.float64, device=place)
        distributed.broadcast(known, 0)
        return float(known)

    def divisor(self, count: Tensor) -> Tensor:
        """Return what a process divides its sum by, so that the mean over processes is the mean over everything."""
        total = count.detach().clone().to(torch.float32)
        distributed.all_reduce(total)
        return total.clamp(min=1) / self.size

    def synchronised(self, modules: nn.Module, loss: Callable[[Indices], Loss]) -> Callable[[Indices], Tensor]:
        """Return the mean of a loss, as a scalar, over all processes; its gradients with regard to ``modules`` are
        averaged over them."""
        if self.size == 1:
            return lambda indices: loss(indices).mean()
        # A model may have parts that a loss does not reach: a pooler, a head.
        return nn.parallel.DistributedDataParallel(
            Step(modules, lambda indices: loss(indices).mean(self.divisor)),
            find_unused_parameters=True,
            broadcast_buffers=False,
        )


class Step(nn.Module):
    """The mean of a loss with the modules that it trains: what is wrapped to be synchronised."""

    def __init__(self, modules: nn.Module, loss: Callable[[Indices], Tensor]) -> None:
        super().__init__()
        self.learned, self.loss = modules, loss

    def forward(self, indices: Indices) -> Tensor:
        """Return the loss of a part of a batch."""
        return self.loss(indices)


def join(place: torch.device) -> ProcessGroup:
    """Enter the process group that torchrun started, or return a process group of one."""
    group = ProcessGroup()
    if group.size > 1 and not distributed.is_initialized():
        distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=PATIENCE)
    return group
