"""Attention outputs: each attention of the student gets the input of the teacher's and learns its output. No layer sees
the errors of those below.

Method: Zhang et al. 2024, LoLCATs, arXiv:2410.10254, where softmax attention is replaced by linear attention; here by
any mixer of ``tasks/modeling``. Of an encoder the output of the whole block is compared, with its residual and norm,
because not every mixer has an output map; of a model that writes that of the attention to its own text, in every stack.
Shape letters: B batch, T tokens of a text or words of one that is written, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasks.architectures.known_architectures import architecture_of
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.layers.layer_dropping import encoder_layers
from tasks.methods.layers.layer_maps import initial_layers
from tasks.methods.losses.hidden_states import hidden_state_loss
from tasks.methods.losses.means import Loss
from tasks.modeling.names import OWN_TYPES
from tasks.training.data.encoded import Batch
from tasks.training.models.phases import Phase
from tasks.training.objectives.capture import Signals, inputs_of_layers
from tasks.training.objectives.context import DistillationContext, Objective

NAME_IN_LAYER = {"limbeck-encoder": "attention", "limbeck-seq2seq": "self_attn", "limbeck-decoder": "attn"}
"""The attention within a layer of each of our models, which its teacher calls the same."""


@dataclass(frozen=True)
class AttentionPair:
    """An attention of the student, and that of the teacher's layer that it comes from."""

    ours: Any
    theirs: Any
    is_of_words: bool
    """Whether it reads the text that a model with two stacks writes."""


class AttentionBlocks(Objective):
    """Compares attentions of a student with those of the teacher's layers that its own come from."""

    def __init__(self, student: Any, teacher: Any) -> None:
        if student.config.model_type not in NAME_IN_LAYER:
            raise ModelError(
                f"method attention-outputs trains other attentions (start: {' or '.join(OWN_TYPES)}), and the student "
                f"is a model of type {student.config.model_type}; use method: layers"
            )
        self.modules, self.student, self.teacher = student, student, teacher
        self.block = NAME_IN_LAYER[student.config.model_type]
        self.pairs, self.copied, self.copied_decoder = list[AttentionPair](), list[int](), list[int]()
        for number, stacks in enumerate(zip(stacks_of(student), stacks_of(teacher), strict=True)):
            ours, theirs = stacks
            copied = initial_layers(len(ours), len(theirs))
            for layer, other in zip(ours, copied, strict=True):
                block, copy = (one.get_submodule(self.block) for one in (layer, theirs[other]))
                self.pairs.append(AttentionPair(block, copy, is_of_words=number == 1))
            (self.copied_decoder if number else self.copied).extend(copied)
        # the places of words that are no padding differ from batch to batch
        self.repeats = not self.copied_decoder

    def check_capture(self, job: Job, batch: Batch) -> None:
        """Log which attentions are compared, and check that what was read of the teacher's is the same in two calls."""
        for copied, of in ((self.copied, "layers"), (self.copied_decoder, "decoder layers")):
            if copied:
                job.log(f"attentions copy those of the teacher's {of} {', '.join(map(str, copied))}, from 0")
        for first, again in zip(self.seen(batch), self.seen(batch), strict=True):
            if not all(torch.equal(one, other) for one, other in zip(first, again, strict=True)):
                raise ModelError("the teacher's attention differs between two calls: dropout is still active")

    def phases(self, total: int) -> Sequence[Phase]:
        """Return one phase, in which attentions learn alone."""
        return [Phase(total, lambda name: f".{self.block}." in name)]

    def seen(self, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Return input and output of each of the teacher's attentions [B, T, D]."""
        found: dict[int, tuple[Tensor, Tensor]] = {}

        def keep(number: int) -> Callable[..., None]:
            def hook(module: Any, given: tuple[Tensor, ...], named: dict[str, Tensor], made: Any) -> None:
                states_BTD = given[0] if given else named["hidden_states"]
                found[number] = states_BTD, output_of(made)

            return hook

        hooks = [
            pair.theirs.register_forward_hook(keep(number), with_kwargs=True) for number, pair in enumerate(self.pairs)
        ]
        # a model with two stacks begins the text that it writes in its own step
        reads = self.teacher.base_model if batch.written_BL is None else self.teacher
        try:
            with torch.no_grad():
                reads(**inputs_of_layers(self.teacher, batch))
        finally:
            for one in hooks:
                one.remove()
        return [found[number] for number in range(len(self.pairs))]

    def loss(self, batch: Batch, theirs: Signals | None = None) -> Loss:
        """Return the mean over layers of the squared difference per number, over tokens that are no padding."""
        total, words_BT = Loss(), written_mask(batch)
        for pair, (given_BTD, made_BTD) in zip(self.pairs, self.seen(batch), strict=True):
            mask_BT = words_BT if pair.is_of_words else batch.mask_BT
            total = total + hidden_state_loss(output_of(pair.ours(given_BTD, mask_BT=mask_BT)), made_BTD, mask_BT)
        return (1 / len(self.pairs)) * total

    def finish(self) -> dict[str, object]:
        """Return the teacher's layers whose attentions were copied."""
        of_words = {"copied_decoder_attention": list(self.copied_decoder)} if self.copied_decoder else {}
        return {"copied_attention": list(self.copied), **of_words}


def stacks_of(model: Any) -> list[Any]:
    """Return the layers of a model, and those of its decoder if it has two stacks."""
    path = architecture_of(model.config).decoder
    return [encoder_layers(model), *([model.base_model.get_submodule(path)] if path else [])]


def output_of(made: Any) -> Tensor:
    """Return the states [B, T, D] that an attention returns, alone or before others."""
    states_BTD: Tensor = made[0] if isinstance(made, tuple) else made
    return states_BTD


def written_mask(batch: Batch) -> Tensor:
    """Return which of the words that are written are no padding [B, L]; without such, the mask of the tokens."""
    if batch.written_BL is None or batch.answered_K is None:
        return batch.mask_BT
    mask_BL = torch.zeros_like(batch.written_BL)
    mask_BL.view(-1)[batch.answered_K] = 1
    return mask_BL


def attention_outputs(context: DistillationContext) -> AttentionBlocks:
    """Return the objective for a distillation context."""
    return AttentionBlocks(context.student, context.teacher)
