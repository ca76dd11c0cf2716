"""The loss of a batch in two parts: its inputs are read, and the loss is a function of these alone.

The second part has no other inputs than tensors of fixed sizes, so a GPU can repeat it (``captured_steps.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tasks.methods.losses.means import Loss
from tasks.training.data.encoded import Batch
from tasks.training.data.epochs import Indices

PARTS = ("ids_BT", "mask_BT", "segments_BT", "at_B", "answered_K", "written_BL")
"""The tensors of a batch on the device."""
NamedSizes = tuple[tuple[str, torch.Size, torch.dtype], ...]


@dataclass(frozen=True)
class BatchInputs:
    """A batch, further tensors by name, such as targets, and a teacher's outputs by theirs."""

    batch: Batch
    beside: Mapping[str, Tensor] = field(default_factory=dict)
    outputs: Mapping[str, Tensor] = field(default_factory=dict)

    def tensors(self) -> list[tuple[str, Tensor]]:
        """Return all tensors on the device, with their names."""
        own = {name: getattr(self.batch, name) for name in PARTS}
        return [item for named in (own, self.beside, self.outputs) for item in named.items() if item[1] is not None]

    def sizes(self) -> tuple[bool, NamedSizes]:
        """Return the signature by which steps are repeated: whether rows are padded, and names, sizes and types of all
        tensors."""
        return self.batch.is_padded, tuple((name, value.shape, value.dtype) for name, value in self.tensors())

    def copied(self) -> BatchInputs:
        """Return the same with tensors of its own; nothing of it is on the host."""
        own: dict[str, Any] = {"host": None}
        own |= cloned({name: value for name in PARTS if (value := getattr(self.batch, name)) is not None})
        batch = replace(self.batch, **own)
        return BatchInputs(batch, cloned(self.beside), cloned(self.outputs))

    def fill(self, given: BatchInputs) -> None:
        """Overwrite all tensors by those of a batch of the same sizes."""
        for (_, value), (_, fresh) in zip(self.tensors(), given.tensors(), strict=True):
            value.copy_(fresh, non_blocking=True)


def cloned(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors by name."""
    return {name: value.clone() for name, value in named.items()}


@dataclass(frozen=True)
class BatchLoss:
    """``read`` finds all that the loss of a batch depends on; ``of`` computes the loss from this alone, by the same
    operations for all batches of the same sizes, without reading a value on the host."""

    read: Callable[[Indices], BatchInputs]
    of: Callable[[BatchInputs], Loss]

    def __call__(self, indices: Indices) -> Loss:
        return self.of(self.read(indices))
