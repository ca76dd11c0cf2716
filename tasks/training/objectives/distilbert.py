"""General distillation with three losses: the teacher's softened predictions of words, the masked words, and the
direction of the last hidden states.

Method: Sanh et al. 2019, DistilBERT, arXiv:1910.01108. Student and teacher read the same masked text.
Shape letters: B batch, T tokens, N tokens that count, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tasks.architectures.known_architectures import vocabulary_head
from tasks.architectures.requirements import require_words
from tasks.errors import ModelError
from tasks.methods.losses.means import Loss, mean_of
from tasks.methods.losses.soft_targets import softened_sum
from tasks.methods.losses.triple_loss import direction_loss, draw_targets, masked_inputs, masked_word_sum, rarity
from tasks.recipe.methods import Triple as TripleKnobs
from tasks.recipe.slices import GeneralSlice
from tasks.training.data.encoded import Batch, Encoded
from tasks.training.objectives.capture import Signals
from tasks.training.objectives.context import DistillationContext, Objective

CHUNK = 1024  # tokens whose vocabulary logits are in memory at once: 125 MB for each tensor of BERT's vocabulary


class Triple(Objective):
    """Three losses over masked text; ``knobs`` are those of the recipe's section ``triple``."""

    def __init__(self, student: Any, teacher: Any, knobs: TripleKnobs, tokenizer: Any, text: Encoded) -> None:
        self.modules, self.student, self.teacher, self.knobs, self.tokenizer = (
            student,
            student,
            teacher,
            knobs,
            tokenizer,
        )
        self.heads = [self.head(model) for model in (student, teacher)]
        if knobs.direction and student.config.hidden_size != teacher.config.hidden_size:
            raise ModelError(
                f"the triple loss compares the direction of hidden states, which are {student.config.hidden_size} "
                f"wide in the student and "
                f"{teacher.config.hidden_size} in the teacher; give them one width, or set triple.direction: 0"
            )
        counts_V = np.zeros(student.config.vocab_size, dtype=np.int64)
        for start in range(0, len(text.ids_S), 1 << 22):
            part = np.bincount(text.ids_S[start : start + (1 << 22)], minlength=len(counts_V))
            counts_V += part
        self.weights_V = rarity(torch.from_numpy(counts_V), tokenizer.all_special_ids)

    def head(self, model: Any) -> Callable[[Tensor], Tensor]:
        """Return a model's vocabulary head; raise ModelError for a family whose head is not known."""
        require_words(model.config)
        found = vocabulary_head(model)
        assert found is not None
        return found

    def loss(self, batch: Batch, theirs: Signals | None = None) -> Loss:
        """Return the weighted sum of the three terms."""
        place, (host_BT, shown_BT) = batch.ids_BT.device, batch.on_host()
        chosen_BT = draw_targets(host_BT, shown_BT, self.weights_V, share=self.knobs.mask_share)
        # Known on the CPU: the number of tokens, which a GPU would be asked for.
        compared_BT = chosen_BT if self.knobs.where == "masked" else shown_BT
        kept_N = compared_BT.flatten().nonzero().squeeze(1)
        drawn_BT, kept_N = (values.to(place, non_blocking=True) for values in (chosen_BT, kept_N))
        ids_BT = masked_inputs(
            batch.ids_BT, drawn_BT, mask_token=self.tokenizer.mask_token_id, vocabulary=len(self.weights_V)
        )
        masked = replace(batch, ids_BT=ids_BT)
        with torch.no_grad():
            teacher_BTD = self.teacher.base_model(**masked.inputs(self.teacher)).last_hidden_state
        student_BTD = self.student.base_model(**masked.inputs(self.student)).last_hidden_state
        teacher_ND, student_ND = (states_BTD.flatten(0, 1)[kept_N] for states_BTD in (teacher_BTD, student_BTD))
        targets_N = torch.where(drawn_BT, batch.ids_BT, -100).flatten()[kept_N]
        soft, words = self.over_vocabulary(student_ND, teacher_ND, targets_N)
        total = self.knobs.soft * mean_of(soft, len(targets_N)) + self.knobs.words * mean_of(words, drawn_BT.sum())
        return total + self.knobs.direction * direction_loss(student_ND, teacher_ND) if self.knobs.direction else total

    def over_vocabulary(self, student_ND: Tensor, teacher_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums of both losses over words. The logits of a chunk of tokens are recomputed for the gradient
        instead of stored."""
        chunks = zip(student_ND.split(CHUNK), teacher_ND.split(CHUNK), targets_N.split(CHUNK), strict=True)
        sums = [checkpoint(self.of_chunk, *chunk, use_reentrant=False) for chunk in chunks]
        soft, words = (torch.stack(parts).sum() for parts in zip(*sums, strict=True))
        return soft, words

    def of_chunk(self, student_ND: Tensor, teacher_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums of both losses over a chunk of tokens."""
        student_NV = self.heads[0](student_ND)
        with torch.no_grad():
            teacher_NV = self.heads[1](teacher_ND)
        return softened_sum(student_NV, teacher_NV, temperature=self.knobs.temperature), masked_word_sum(
            student_NV, targets_N
        )


def distilbert(context: DistillationContext) -> Triple:
    """Return the objective for a distillation context on general text."""
    if context.text is None or not isinstance(context.knobs, GeneralSlice):
        raise ModelError("the triple loss reads general text; use it as general_distillation.method")
    return Triple(context.student, context.teacher, context.knobs.triple, context.tokenizer, context.text)
