"""Phases of a training: one after another, each trains other parameters, or with another loss.

Source: Sun et al. 2020, MobileBERT, arXiv:2004.02984: progressive knowledge transfer trains layer after layer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import nn

from tasks.errors import ModelError
from tasks.methods.losses.means import Loss
from tasks.training.data.epochs import Indices


@dataclass(frozen=True)
class Phase:
    """A part of a training: its optimizer steps, the parameters that learn in it, and its loss."""

    steps: int
    learns: Callable[[str], bool] = lambda name: True
    """Whether a parameter learns, by its name in ``modules.named_parameters()``; a parameter that is frozen before the
    training is frozen in all phases, and one of several names has the first."""
    loss: Callable[[Indices], Loss] | None = None
    """The loss of a batch; None: that of the training."""


class Phases:
    """The phases of a training in progress. ``start`` and ``end`` are the first step of the current phase and that of
    the next one.

    Each phase has a learning-rate schedule of its own, so that parameters which begin to learn have the warm-up that
    their moments need. Raises ModelError if the steps of the phases are not those of the training, or if a phase
    trains nothing.
    """

    def __init__(self, phases: Sequence[Phase], total: int, modules: nn.Module) -> None:
        self.phases, self.start, self.end = phases, 0, 0
        self.ends = list(accumulate(phase.steps for phase in phases))
        self.learned = [(name, value) for name, value in modules.named_parameters() if value.requires_grad]
        if min((phase.steps for phase in phases), default=0) < 1 or self.ends[-1] != total:
            given = " + ".join(f"{phase.steps:,}" for phase in phases) or "no"
            raise ModelError(
                f"the phases have {given} steps, and the training {total:,}; give each phase at least one, and all of "
                f"them together {total:,}"
            )
        for number, phase in enumerate(phases, 1):
            if not any(phase.learns(name) for name, _ in self.learned):
                raise ModelError(f"phase {number} of {len(phases)} trains no parameter; name one that is not frozen")

    def at(self, step: int, optimizer: torch.optim.Optimizer) -> Phase:
        """Return the phase of a step, in which its parameters learn and all others are frozen.

        The optimizer forgets the moments of frozen parameters: they start fresh when they learn again. A checkpoint
        of the middle of a phase has none of them, so a resumed training is in the same state.
        """
        number = bisect_right(self.ends, step)
        phase, self.end = self.phases[number], self.ends[number]
        self.start = self.end - phase.steps
        for name, value in self.learned:
            value.requires_grad_(phase.learns(name))
            if not value.requires_grad:
                optimizer.state.pop(value, None)
        return phase

    def finish(self) -> None:
        """Unfreeze the parameters that were not frozen before the training."""
        for _, value in self.learned:
            value.requires_grad_(True)
