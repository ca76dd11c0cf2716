"""Training for few bits: a model computes as its quantized graph will, and learns from itself in full precision, or
from labels.

Methods: Zafrir et al. 2019, Q8BERT, arXiv:1910.06188 (rounding in every pass); Zhang et al. 2020, TernaryBERT,
arXiv:2009.12812 (its own full-precision model is the teacher: predictions and all hidden states). The result is a plain
folder whose weights are the rounded ones. Shape letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from tasks.architectures.known_architectures import model_type_of
from tasks.architectures.requirements import require_served
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.losses.hidden_states import hidden_state_loss
from tasks.methods.losses.means import Loss
from tasks.methods.pruning.silent_heads import has_silent_heads, size_of_one_head
from tasks.methods.quantization.grids import SHARING
from tasks.recipe.makers.slices import QuantizationSlice
from tasks.task_types.heads import HEADS
from tasks.training.data.encoded import collate
from tasks.training.data.epochs import Epoch, Indices, planned
from tasks.training.data.rows import Task, read_rows, student_rows, task_and_tokenizer
from tasks.training.finetune import labelled_loss
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.fake_quantization import FakeQuantization
from tasks.training.models.students import freeze, load_classifier, save_model, set_dropout
from tasks.training.objectives.capture import Capture
from tasks.training.precision import device, make_deterministic, store_as_multiplied
from tasks.training.selection import selector


def train_on_grid(job: Job) -> dict[str, object]:
    """Write ``start`` trained for a grid; return its score on the selection rows as it will be served."""
    knobs, place = job.read(QuantizationSlice), device()
    make_deterministic(knobs.seed)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "start")
    model = load_classifier(job.inputs["start"], task, place, seed=knobs.seed)
    require_served(model_type_of(model.config))
    require_whole_blocks(model, knobs.format)
    learning = Learning(job, knobs, task, model, tokenizer)
    loss, epoch = learning.loss_and_epochs()
    set_dropout(model, knobs.dropout)
    rounded = rounding_of(model, knobs) if knobs.rounding == "while-training" else None
    spec = TrainingSpec(
        modules=model,
        epoch=epoch,
        loss=loss,
        pad=tokenizer.pad_token_id,
        begin=(lambda step, total: None) if rounded is None else rounded.begin,
        after_step=() if rounded is None else (rounded.after_step,),
    )
    with task.head.start_from_labels(model, lambda: read_rows(job.inputs["rows"], "train", task.head).labels_N):
        facts = train(job, knobs, spec, place)
    served = rounded or rounding_of(model, knobs)
    score = learning.score()
    served.finish()
    save_model(model, tokenizer, job.output)
    return facts | {"selection_score": score, "bits": knobs.weight_bits, "note": note_on_grid(knobs)}


def require_whole_blocks(model: Any, format_: str) -> None:
    """Raise ModelError for a model whose graph would divide its weights into other blocks than it does in training: a
    graph leaves silent heads out, and with them columns of the map behind attention."""
    if format_ != "four-bit" or size_of_one_head(model) % SHARING == 0 or not has_silent_heads(model):
        return
    raise ModelError(
        f"heads of this model were pruned, each of {size_of_one_head(model)} numbers, and its graph leaves them out, "
        f"so that {SHARING} weights which share a step here would be {SHARING} others there; set format: int8, or make "
        f"it from a model with all of its heads"
    )


def rounding_of(model: Any, knobs: QuantizationSlice) -> FakeQuantization:
    """Let a model compute as its graph."""
    trained = knobs.rounding == "while-training"
    return FakeQuantization(model, knobs.format, knobs.codes, seven_bits=knobs.seven_bits, trained=trained)


def note_on_grid(knobs: QuantizationSlice) -> str:
    """Return a sentence on the grid."""
    weights = "ternary weights" if knobs.codes == "ternary" else f"weights of {knobs.codes} bits"
    when = "rounded in training" if knobs.rounding == "while-training" else "rounded after training"
    return f"{weights} for {knobs.format}, {when}"


@dataclass(frozen=True)
class Learning:
    """What a model learns from on its grid, and how it is scored."""

    job: Job
    knobs: QuantizationSlice
    task: Task
    model: Any
    tokenizer: Any

    def loss_and_epochs(self) -> tuple[Callable[[Indices], Loss], Callable[[int], Epoch]]:
        """Return the loss of a batch, and the plan of an epoch, in which embeddings are trained as a whole: their range
        is that of all rows."""
        if self.knobs.signal == "teacher":
            rows = student_rows(self.job, self.task, transfer_alone=self.knobs.transfer_alone)
        else:
            rows = read_rows(self.job.inputs["rows"], "train", self.task.head)
        encoded = rows.tokens(self.tokenizer, self.knobs.max_length)
        if self.knobs.signal == "teacher":
            loss, together = self.own_loss(rows.targets_in(encoded)), rows.together(self.knobs.hard_weight)
        else:
            loss = labelled_loss(self.model, self.task, rows, encoded, self.tokenizer.pad_token_id)
            together = rows.together()

        def epoch(number: int) -> Epoch:
            return replace(planned(number, encoded, self.knobs, together=together), tokens_S=None)

        return loss, epoch

    def own_loss(self, targets_N: np.ndarray) -> Callable[[Indices], Loss]:
        """Return the loss against the model as it was before, in full precision: its predictions, and all hidden
        states."""
        knobs, head, place = self.knobs, self.task.head, self.model.device
        teacher = freeze(load_classifier(self.job.inputs["start"], self.task, place))
        store_as_multiplied(teacher, knobs.precision)
        compared = range(teacher.config.num_hidden_layers + 1) if knobs.hidden_weight else ()
        ours_of, theirs_of = (Capture(one, head, hidden=compared) for one in (self.model, teacher))
        targets = torch.from_numpy(targets_N).to(place)
        loss_of = partial(
            HEADS[knobs.task_type].teacher_loss,
            temperature=knobs.temperature,
            hard_weight=knobs.hard_weight,
            formula=knobs.formula,
        )

        def loss(indices: Indices) -> Loss:
            batch = collate(indices.epoch.encoded, indices.rows_B, self.tokenizer.pad_token_id, place)
            with torch.no_grad():
                theirs = theirs_of(**batch.inputs(teacher))
            ours = ours_of(**batch.inputs(self.model))
            answers = {name: values.float() for name, values in batch.answers(theirs.outputs).items()}
            total: Loss = loss_of(batch.answers(ours.outputs), answers, targets[batch.at_B])
            for layer in compared:
                gap = hidden_state_loss(ours.hidden[layer], theirs.hidden[layer], batch.mask_BT)
                total = total + knobs.hidden_weight * gap
            return total

        return loss

    def score(self) -> float | None:
        """Return the score on the selection rows, computed in full precision but for what is rounded; None if there are
        none."""
        held = read_rows(self.job.inputs["rows"], "selection", self.task.head)
        encoded = held.tokens(self.tokenizer, self.knobs.max_length)
        exact = self.knobs.model_copy(update={"precision": "fp32"})
        scored = selector(self.model, self.task, held, encoded, self.tokenizer.pad_token_id, exact)
        return None if scored is None else scored()
