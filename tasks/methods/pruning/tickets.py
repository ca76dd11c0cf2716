"""Lottery tickets: the weights with which a training should have begun, found by training and pruning in rounds.

A ticket is a mask, and the weights of an early step under it. Sources: Frankle, Carbin 2018, arXiv:1803.03635 (a share
of what is left goes in each round); Frankle et al. 2020, arXiv:1912.05671 (rewinding to a step); Chen et al. 2020,
arXiv:2007.12223 (BERT: a share of all weights goes in each round, and the head is not rewound). After each round,
weights go back to those of the early step; with random ones, the mask alone is on trial.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tasks.methods.pruning.weight_masks import largest


def ticket(trained: Sequence[Tensor], share: float) -> list[Tensor]:
    """Return the masks of a share of all weights: the largest of those that are not masked yet, which are not 0."""
    count = round(share * sum(one.numel() for one in trained))
    return [
        mask & (one != 0) for one, mask in zip(trained, largest([one.abs() for one in trained], count), strict=True)
    ]


def at_random(masks: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
    """Return masks in which other weights stay, as many in each matrix."""
    drawn = [torch.rand(mask.shape, generator=generator) for mask in masks]
    return [largest([one], int(mask.sum()))[0] for one, mask in zip(drawn, masks, strict=True)]


def drawn_anew(weights: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
    """Return random weights, of each matrix as large as they are."""
    return [torch.randn(one.shape, generator=generator) * one.std(correction=0).cpu() for one in weights]
