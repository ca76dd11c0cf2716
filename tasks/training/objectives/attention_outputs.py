"""Attention outputs: each attention block of the student gets the input of the teacher's block and learns its output.
No layer sees the errors of those below.

Method: Zhang et al. 2024, LoLCATs, arXiv:2410.10254, where softmax attention is replaced by linear attention; here by
any mixer of ``tasks/modeling``. Compared is the output of the whole block, with its residual and norm, because not
every mixer has an output map. Shape letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.layers.layer_dropping import encoder_layers
from tasks.methods.layers.layer_maps import initial_layers
from tasks.methods.losses.hidden_states import hidden_state_loss
from tasks.methods.losses.means import Loss
from tasks.training.data.encoded import Batch
from tasks.training.models.phases import Phase
from tasks.training.objectives.capture import Signals
from tasks.training.objectives.context import DistillationContext, Objective


class AttentionBlocks(Objective):
    """Compares attention blocks of a student with those of the teacher's layers that its own come from."""

    repeats = True

    def __init__(self, student: Any, teacher: Any) -> None:
        if student.config.model_type != "limbeck-encoder":
            raise ModelError(
                f"method attention-outputs trains other attentions (start: limbeck-encoder), and the student is a "
                f"{student.config.model_type}; use method: layers"
            )
        self.modules, self.student, self.teacher = student, student, teacher
        self.blocks = [layer.get_submodule("attention") for layer in encoder_layers(student)]
        every = encoder_layers(teacher)
        self.copied = initial_layers(len(self.blocks), len(every))
        self.theirs = [every[layer].get_submodule("attention") for layer in self.copied]

    def check_capture(self, job: Job, batch: Batch) -> None:
        """Log which blocks are compared, and check that what was read of the teacher's is the same in two calls."""
        job.log(f"attention blocks copy those of the teacher's layers {', '.join(map(str, self.copied))}, from 0")
        for first, again in zip(self.seen(batch), self.seen(batch), strict=True):
            if not all(torch.equal(one, other) for one, other in zip(first, again, strict=True)):
                raise ModelError("the teacher's attention differs between two calls: dropout is still active")

    def phases(self, total: int) -> Sequence[Phase]:
        """Return one phase, in which attention blocks learn alone."""
        return [Phase(total, lambda name: ".attention." in name)]

    def seen(self, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Return input and output of each of the teacher's blocks [B, T, D]."""
        found: dict[int, tuple[Tensor, Tensor]] = {}

        def keep(number: int) -> Callable[..., None]:
            def hook(module: Any, given: tuple[Tensor, ...], named: dict[str, Tensor], made: Any) -> None:
                states_BTD = given[0] if given else named["hidden_states"]
                found[number] = states_BTD, made[0] if isinstance(made, tuple) else made

            return hook

        hooks = [
            block.register_forward_hook(keep(number), with_kwargs=True) for number, block in enumerate(self.theirs)
        ]
        try:
            with torch.no_grad():
                self.teacher.base_model(**batch.inputs(self.teacher))
        finally:
            for one in hooks:
                one.remove()
        return [found[number] for number in range(len(self.theirs))]

    def loss(self, batch: Batch, theirs: Signals | None = None) -> Loss:
        """Return the mean over layers of the squared difference per number, over tokens that are no padding."""
        total = Loss()
        for block, (given_BTD, made_BTD) in zip(self.blocks, self.seen(batch), strict=True):
            total = total + hidden_state_loss(block(given_BTD, batch.mask_BT), made_BTD, batch.mask_BT)
        return (1 / len(self.blocks)) * total

    def finish(self) -> dict[str, object]:
        """Return the teacher's layers whose blocks were copied."""
        return {"copied_attention": list(self.copied)}


def attention_outputs(context: DistillationContext) -> AttentionBlocks:
    """Return the objective for a distillation context."""
    return AttentionBlocks(context.student, context.teacher)
