"""Dropout whose masks cost next to nothing on a CPU.

Torch draws a mask there one number after another on one thread, which is a tenth of a training step on one core and
more on several. A mask needs 16 random bits for a unit, of which numpy's SFC64 gives four at a time. Every step has its
own stream, named by seed, step and process, so that a resumed training draws what it would have drawn. Method:
Srivastava et al. 2014, Dropout, Journal of Machine Learning Research 15.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

LEVELS = 2**16


class Masks:
    """Where the masks of this process's training come from."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, *names: int) -> None:
        """Begin a stream of its own for a step."""
        seed, *place = names
        self.random = np.random.SFC64(np.random.SeedSequence(seed, spawn_key=place))

    def draw(self, like: Tensor, share: float) -> Tensor:
        """Return factors of the shape and type of ``like``: 0 for ``share`` of the units, and what keeps the mean for
        the others."""
        dropped = round(share * LEVELS)
        words = self.random.random_raw(-(-like.numel() // 4))
        # numpy compares and multiplies these several times faster than torch, which goes through booleans one by one.
        kept = (words.view(np.int16)[: like.numel()] >= dropped - LEVELS // 2) * np.float32(LEVELS / (LEVELS - dropped))
        return torch.from_numpy(kept).view(like.shape).to(like.dtype)


MASKS = Masks()


class Dropout(nn.Module):
    """Stands in for ``torch.nn.Dropout``."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, values: Tensor) -> Tensor:
        """Drop units in training."""
        return values * MASKS.draw(values, self.p) if self.training else values


@contextmanager
def cheap_masks(modules: nn.Module) -> Iterator[None]:
    """Let every dropout among ``modules`` take its masks from ``MASKS``; afterwards all is as it was."""
    places = [
        (parent, name, child)
        for parent in modules.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Dropout and 0 < child.p < 1
    ]
    for parent, name, child in places:
        setattr(parent, name, Dropout(child.p))
    try:
        yield
    finally:
        for parent, name, child in places:
            setattr(parent, name, child)
