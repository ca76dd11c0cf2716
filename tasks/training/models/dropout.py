"""Dropout with fast masks on a CPU.

On a CPU, torch draws a mask one number after another on one thread, which takes a tenth of a training step on one core
and a larger share on several. A mask needs 16 random bits per unit, and numpy's SFC64 draws four units at a time. Every
step has its own random stream, named by seed, step and process, so that a resumed training draws the same masks as an
uninterrupted one. Method: Srivastava et al. 2014, Dropout, Journal of Machine Learning Research 15.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

LEVELS = 2**16


class Masks:
    """The source of the dropout masks of this process."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, *names: int) -> None:
        """Start the random stream of a step."""
        seed, *place = names
        self.random = np.random.SFC64(np.random.SeedSequence(seed, spawn_key=place))

    def draw(self, like: Tensor, share: float) -> Tensor:
        """Return factors of the shape and type of ``like``: 0 for ``share`` of the units, and for the others the factor
        that preserves the mean."""
        dropped = round(share * LEVELS)
        words = self.random.random_raw(-(-like.numel() // 4))
        # numpy compares and multiplies these several times faster than torch, which handles booleans one by one.
        kept = (words.view(np.int16)[: like.numel()] >= dropped - LEVELS // 2) * np.float32(LEVELS / (LEVELS - dropped))
        return torch.from_numpy(kept).view(like.shape).to(like.dtype)


MASKS = Masks()


class Dropout(nn.Module):
    """Replaces ``torch.nn.Dropout``."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, values: Tensor) -> Tensor:
        """Drop units in training."""
        return values * MASKS.draw(values, self.p) if self.training else values


@contextmanager
def cheap_masks(modules: nn.Module) -> Iterator[None]:
    """Make every dropout among ``modules`` use masks from ``MASKS``; restore the original modules afterwards."""
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
