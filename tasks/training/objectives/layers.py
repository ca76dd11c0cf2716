"""Copying a teacher's inner layers: choice of signals, layers and formula.

Method: Jiao et al. 2019, TinyBERT, arXiv:1909.10351.
Shape letters: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tasks.architectures.known_architectures import architecture_of
from tasks.engine.job import Job
from tasks.errors import ModelError, RecipeError
from tasks.methods.layers.layer_maps import LayerMap, layer_map, of_kept
from tasks.methods.losses.attention_scores import attention_score_loss, attention_score_loss_paper
from tasks.methods.losses.hidden_states import Projections, hidden_state_loss, hidden_state_loss_paper
from tasks.methods.losses.means import Loss
from tasks.recipe.methods import Matching
from tasks.recipe.slices import SignalSlice
from tasks.training.data.encoded import Batch
from tasks.training.objectives.capture import Capture, Signals, beyond_window, check_capture
from tasks.training.objectives.context import DistillationContext, Objective

MASKED_SCORE = -10_000.0  # the reference code adds this to the scores of padded keys


class LayerObjective(Objective):
    """Computes the inner loss of a batch: the student's mapped layers against the teacher's.

    ``knobs`` are those of the section ``matching``. The paper's formula pads every row to ``longest`` tokens: its means
    are taken over padding as well, so their size depends on the amount of padding.
    """

    repeats = True

    def __init__(self, student: Any, teacher: Any, knobs: Matching, longest: int | None = None) -> None:
        layers = student.config.num_hidden_layers
        self.knobs, self.student, self.teacher = knobs, student, teacher
        self.map = map_between(student.config, teacher.config, knobs.layer_map)
        widths = student.config.hidden_size, teacher.config.hidden_size
        self.projections = Projections(layers + 1, *widths, kind=knobs.projection).to(student.device)
        # A map may end early: signals of the student's last layers are then not captured.
        ours = range(len(self.map.hidden)), range(len(self.map.attention))
        self.of_student = Capture(student, **weighted_signals(knobs, *ours))
        self.of_teacher = Capture(teacher, **weighted_signals(knobs, self.map.hidden, self.map.attention))

        self.modules = nn.ModuleDict({"student": student, "projections": self.projections})
        self.width = longest if knobs.formula == "paper" else None
        for model in (student, teacher):
            if self.width is not None:
                require_positions(model.config, self.width)

    def check_capture(self, job: Job, batch: Batch) -> None:
        """Check the capture on a real batch before hours of training depend on it, and log the layer map."""
        check_capture(self.of_teacher, batch.inputs(self.teacher), batch.mask_BT)
        job.log(
            f"layer map: student states {list(range(len(self.map.hidden)))} from teacher states {list(self.map.hidden)}"
        )

    def loss(self, batch: Batch, theirs: Signals | None = None) -> Loss:
        """Return the inner loss of one batch; run the teacher unless its signals ``theirs`` are recorded.

        Raises ModelError if the formula counts padding that the batch or the recorded signals do not have.
        """
        self.require_padding(batch, theirs)
        if theirs is None:
            with torch.no_grad():  # autograd cannot use tensors of inference mode in a loss without a copy
                theirs = self.of_teacher(**batch.inputs(self.teacher))
        return self.compare(self.of_student(**batch.inputs(self.student)), theirs, batch.mask_BT)

    def require_padding(self, batch: Batch, theirs: Signals | None) -> None:
        """Refuse a batch without the padding that the formula counts, and recorded signals, which have no padding."""
        tokens = batch.mask_BT.shape[1]
        if self.width is not None and tokens != self.width:
            raise ModelError(
                f"formula: paper counts padding up to {self.width} tokens, and this batch has {tokens}; "
                "pad it, or set formula: masked"
            )
        if self.knobs.formula == "paper" and theirs is not None:
            raise ModelError(
                "formula: paper counts padding, and stored layers contain valid tokens only; set keep_signals: "
                "never, or formula: masked"
            )

    def finish(self) -> dict[str, object]:
        """Return the layer map."""
        return {"layer_map": list(self.map.hidden)}

    def compare(self, ours: Signals, theirs: Signals, mask_BT: Tensor) -> Loss:
        """Return the sum of the losses over the mapped layers."""
        total = Loss()
        for index, mapped in enumerate(self.map.hidden if self.knobs.hidden else ()):
            total = total + self.knobs.hidden * self.hidden_loss(
                ours.hidden[index], theirs.hidden[mapped], mask_BT, index
            )
        for index, mapped in enumerate(self.map.attention if self.knobs.attention else ()):
            total = total + self.knobs.attention * self.attention_loss(
                ours.scores[index], theirs.scores[mapped], mask_BT, self.unseen_pairs(index, mapped, mask_BT)
            )
        return total

    def hidden_loss(self, student_BTD: Tensor, teacher_BTE: Tensor, mask_BT: Tensor, index: int) -> Loss:
        """Return the loss of one pair of hidden states by the chosen formula."""
        projection = self.projections.of(index)
        if self.knobs.formula == "paper":
            return hidden_state_loss_paper(student_BTD, teacher_BTE, projection)
        return hidden_state_loss(student_BTD, teacher_BTE, mask_BT, projection)

    def unseen_pairs(self, index: int, mapped: int, mask_BT: Tensor) -> Tensor | None:
        """Return which pairs of tokens are too far apart for one of two mapped layers to attend to; None if both layers
        are global."""
        pair = ((self.student, index), (self.teacher, mapped))
        reaches = [architecture_of(model.config).reach(model.config, layer) for model, layer in pair]
        local = [reach for reach in reaches if reach is not None]
        return beyond_window(mask_BT, min(local)) if local else None

    def attention_loss(
        self, student_BHTT: Tensor, teacher_BHTT: Tensor, mask_BT: Tensor, far_1TT: Tensor | None = None
    ) -> Loss:
        """Return the loss of one pair of score tensors by the chosen formula."""
        if self.knobs.formula == "paper":
            unseen_BTT = mask_BT[:, None, :] == 0 if far_1TT is None else (mask_BT[:, None, :] == 0) | far_1TT
            added_B1TT = unseen_BTT[:, None] * MASKED_SCORE
            return attention_score_loss_paper(student_BHTT + added_B1TT, teacher_BHTT + added_B1TT)
        return attention_score_loss(student_BHTT, teacher_BHTT, mask_BT, far_1TT)


def require_positions(config: Any, width: int) -> None:
    """Raise ModelError if a model has too few positions for rows of ``width`` tokens."""
    positions = getattr(config, "max_position_embeddings", None) or width
    room = positions - ((config.pad_token_id or 0) + 1 if architecture_of(config).reserved_positions else 0)
    if 0 <= room < width:  # relative positions have no limit, which some configs express as -1
        raise ModelError(
            f"formula: paper pads every row to max_length, here {width} tokens, "
            f"and this {config.model_type} model takes {room}; lower max_length"
        )


def map_between(student: Any, teacher: Any, name: str) -> LayerMap:
    """Return the layer map of two configs; ``kept`` does not depend on the two depths, but on the layers that the
    student took from its teacher."""
    if name != "kept":
        return layer_map(name, student.num_hidden_layers, teacher.num_hidden_layers)
    ours = getattr(student, "kept_layers", None)
    theirs = getattr(teacher, "kept_layers", None) or list(range(teacher.num_hidden_layers))
    if ours is None or not set(ours) <= set(theirs):
        raise RecipeError(
            "the layer map 'kept' is for a student that starts from whole layers of its teacher; choose uniform, or "
            "such a start"
        )
    return of_kept([theirs.index(layer) for layer in ours])


def layers(context: DistillationContext) -> LayerObjective:
    """Return the objective for a distillation context."""
    return LayerObjective(context.student, context.teacher, context.knobs.matching, context.longest)


def weighted_signals(
    knobs: Matching | SignalSlice, hidden: Iterable[int], attention: Iterable[int]
) -> dict[str, tuple[int, ...]]:
    """Return the layers of each signal, without the signals whose weight is zero."""
    return {"hidden": tuple(hidden) if knobs.hidden else (), "attention": tuple(attention) if knobs.attention else ()}
