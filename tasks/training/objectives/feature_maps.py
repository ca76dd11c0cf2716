"""Transfer of feature maps and attention, layer after layer, and then of the predictions of masked words.

Method: Sun et al. 2020, MobileBERT, arXiv:2004.02984. In the paper's order, the layers take turns from the first to the
last (progressive); or all are transferred at once before the predictions (joint), or beside them (auxiliary).
Shape letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from tasks.architectures.known_architectures import architecture_of
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.layers.layer_dropping import encoder_layers
from tasks.methods.losses.attention_distributions import attention_distribution_loss
from tasks.methods.losses.feature_maps import (
    feature_map_loss,
    steps_of_layers,
    token_mean_loss,
    token_variance_loss,
)
from tasks.methods.losses.hidden_states import hidden_state_loss
from tasks.methods.losses.means import Loss
from tasks.recipe.methods import FeatureMaps as FeatureMapsKnobs
from tasks.recipe.methods import Triple as TripleKnobs
from tasks.training.data.encoded import Batch
from tasks.training.models.phases import Phase
from tasks.training.objectives.capture import Capture, Signals, check_capture, inputs_of_layers
from tasks.training.objectives.context import DistillationContext, Objective
from tasks.training.objectives.distilbert import Triple

RATE_OF_EARLIER = 0.1
"""Rate of earlier layers, with ``freeze: soft``, relative to that of the layer that is transferred."""


class Transfer(Objective):
    """Compares block outputs and attention, layer by layer; ``knobs`` are those of the section ``feature_maps``.
    ``words`` compares predictions of masked words, if that is part of the phase."""

    def __init__(self, student: Any, teacher: Any, knobs: FeatureMapsKnobs, words: Triple | None = None) -> None:
        self.modules, self.student, self.teacher, self.knobs, self.words = student, student, teacher, knobs, words
        self.stack = encoder_layers(student)
        every = range(len(self.stack))
        require_layers(len(every), len(encoder_layers(teacher)))
        asked = {"hidden": [layer + 1 for layer in every] if copies_outputs(knobs) else []}
        asked |= {"attention": list(every) if knobs.attention else []}
        # Bare encoders: logits of a whole vocabulary would be computed for nothing.
        self.of_student, self.of_teacher = (Capture(model.base_model, **asked) for model in (student, teacher))
        self.plan: list[TransferPart] = []
        self.now, self.before = TransferPart(0, tuple(every), words is not None), list[tuple[Tensor, Tensor]]()

    def check_capture(self, job: Job, batch: Batch) -> None:
        """Check the capture of the teacher."""
        check_capture(self.of_teacher, inputs_of_layers(self.teacher, batch), batch.mask_BT)

    def parts(self, total: int) -> list[TransferPart]:
        """Return the parts of a training of so many steps. Raises ModelError if some part would have none."""
        every, knobs = tuple(range(len(self.stack))), self.knobs
        if knobs.transfer == "auxiliary":
            return [TransferPart(total, every, self.words is not None)]
        transferred = total if self.words is None else round(total * knobs.share)
        last = [] if self.words is None else [TransferPart(total - transferred, (), True)]
        if min(transferred, total - transferred if last else 1) < 1:
            raise ModelError(
                f"feature_maps.share: {knobs.share} of {total:,} steps leaves a part without steps; give the phase more"
            )
        if knobs.transfer == "joint":
            return [TransferPart(transferred, every, False), *last]
        steps = steps_of_layers(transferred, len(every))
        return [*(TransferPart(count, (layer,), False) for layer, count in enumerate(steps)), *last]

    def phases(self, total: int) -> Sequence[Phase]:
        """Return the phases of the loop: which parameters learn in each part."""
        self.plan = self.parts(total)
        return [Phase(part.steps, self.learners(part)) for part in self.plan]

    def learners(self, part: TransferPart) -> Callable[[str], bool]:
        """Return whether a parameter learns in a part: all of them, or those of a layer that takes its turn, and with
        ``freeze: soft`` of those before it; the embeddings learn with the first layer alone."""
        if self.knobs.transfer != "progressive" or not part.layers:
            return lambda name: True
        turn, soft = part.layers[0], self.knobs.freeze == "soft"
        prefix = f"{path_of(self.student, self.stack)}."
        table = f"{path_of(self.student, self.student.base_model.get_submodule(self.embeddings))}."

        def learns(name: str) -> bool:
            if not name.startswith(prefix):
                return turn == 0 and name.startswith(table)
            layer = int(name.removeprefix(prefix).partition(".")[0])
            return layer == turn or (soft and layer < turn)

        return learns

    @property
    def embeddings(self) -> str:
        """The path of the embeddings in the encoder."""
        return architecture_of(self.student.config).embeddings

    def begin(self, step: int, total: int) -> None:
        """Find the part of a step, also after a resume; keep the weights that the step may change by a tenth only."""
        self.plan = self.plan or self.parts(total)
        ends = accumulate(part.steps for part in self.plan)
        self.now = next(part for part, end in zip(self.plan, ends, strict=True) if step < end)
        slow = self.stack[: self.now.layers[0]] if self.is_slowed else ()
        self.before = [(value, value.detach().clone()) for layer in slow for value in layer.parameters()]

    @property
    def is_slowed(self) -> bool:
        """Whether earlier layers learn at a lower rate now."""
        return self.knobs.transfer == "progressive" and self.knobs.freeze == "soft" and bool(self.now.layers)

    def after_step(self, step: int) -> None:
        """Take back nine tenths of the change of earlier layers: AdamW's update is proportional to its rate."""
        for value, before in self.before:
            value.copy_(torch.lerp(before, value, RATE_OF_EARLIER))

    def loss(self, batch: Batch, theirs: Signals | None = None) -> Loss:
        """Return the loss of the current part; in evaluation that of all layers and of the words, so that checkpoints
        of different parts can be compared."""
        learning = self.student.training
        layers = self.now.layers if learning else tuple(range(len(self.stack)))
        has_words = self.now.has_words if learning else self.words is not None
        total = self.transferred(batch, layers) if layers else Loss()
        if has_words and self.words is not None:
            total = total + self.knobs.predictions * self.words.loss(batch)
        return total

    def transferred(self, batch: Batch, layers: Sequence[int]) -> Loss:
        """Return the mean over some layers of the weighted losses of each."""
        with torch.no_grad():
            theirs = self.of_teacher(**inputs_of_layers(self.teacher, batch))
        ours, total = self.of_student(**inputs_of_layers(self.student, batch)), Loss()
        for layer in layers:
            if self.of_student.hidden:
                pair = ours.hidden[layer + 1], theirs.hidden[layer + 1]
                total = total + self.of_outputs(*pair, batch.mask_BT)
            if self.knobs.attention:
                scores = ours.scores[layer], theirs.scores[layer]
                total = total + self.knobs.attention * attention_distribution_loss(*scores, batch.mask_BT)
        return (1 / len(layers)) * total

    def of_outputs(self, student_BTD: Tensor, teacher_BTD: Tensor, mask_BT: Tensor) -> Loss:
        """Return the weighted losses of one layer's output."""
        knobs, given = self.knobs, (student_BTD, teacher_BTD, mask_BT)
        if knobs.formula == "paper":
            return knobs.hidden * hidden_state_loss(*given)
        weighed = {feature_map_loss: knobs.hidden, token_mean_loss: knobs.mean, token_variance_loss: knobs.variance}
        total = Loss()
        for of, weight in weighed.items():
            total = total + weight * of(*given) if weight else total
        return total

    def finish(self) -> dict[str, object]:
        """Return the steps of each part."""
        return {"steps_of_parts": [part.steps for part in self.plan]}


class TransferPart:
    """A part of the training: its steps, the layers that are transferred in it, and whether words are predicted."""

    def __init__(self, steps: int, layers: tuple[int, ...], has_words: bool) -> None:
        self.steps, self.layers, self.has_words = steps, layers, has_words


def copies_outputs(knobs: FeatureMapsKnobs) -> bool:
    """Tell whether any loss reads the outputs of blocks."""
    return bool(knobs.hidden or (knobs.formula != "paper" and (knobs.mean or knobs.variance)))


def path_of(model: Any, module: Any) -> str:
    """Return the path of a module in a model."""
    return next(name for name, other in model.named_modules() if other is module)


def require_layers(ours: int, theirs: int) -> None:
    """Raise ModelError for a student with another number of layers than its teacher's."""
    if ours != theirs:
        raise ModelError(
            f"method feature-maps copies layer by layer, and the student has {ours} layers, the teacher {theirs}; give "
            f"the student {theirs}, or use method: layers"
        )


def feature_maps(context: DistillationContext) -> Transfer:
    """Return the objective for a distillation context; words are predicted on general text alone."""
    knobs = context.knobs.feature_maps
    if context.text is None or not knobs.predictions:
        return Transfer(context.student, context.teacher, knobs)
    alone = TripleKnobs(
        soft=1 - knobs.words,
        words=knobs.words,
        direction=0.0,
        temperature=knobs.temperature,
        mask_share=knobs.mask_share,
        where="masked",
    )
    words = Triple(context.student, context.teacher, alone, context.tokenizer, context.text)
    return Transfer(context.student, context.teacher, knobs, words)
