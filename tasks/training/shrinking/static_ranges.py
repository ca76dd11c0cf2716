"""Training for int8 with static ranges: what each linear map reads has one range for all texts, and its step learns
with the weights, or stays as it was measured (the control).

Method: Esser et al. 2019, "Learned Step Size Quantization", arXiv:1902.08153; what the model learns from is as in
``quantization.py``. Ranges are measured on the first batches of the training before it begins, and after it where the
training is in full precision. The result is a plain folder of rounded weights whose config names the ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasks.architectures.known_architectures import model_type_of
from tasks.architectures.requirements import require_served
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.losses.means import Loss
from tasks.methods.pruning.silent_heads import has_silent_heads
from tasks.recipe.makers.slices import StaticQuantizationSlice
from tasks.training.data.epochs import Epoch, Indices
from tasks.training.data.rows import read_rows, task_and_tokenizer
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.fixed_ranges import FixedRanges, measured_ranges
from tasks.training.models.students import load_classifier, save_model, set_dropout
from tasks.training.precision import device, make_deterministic
from tasks.training.shrinking.quantization import Learning

BATCHES_MEASURED = 16
"""Batches of training rows on which ranges are measured."""


def train_on_static_ranges(job: Job) -> dict[str, object]:
    """Write ``start`` trained for static ranges; return its score on the selection rows as it will be served."""
    knobs, place = job.read(StaticQuantizationSlice), device()
    make_deterministic(knobs.seed)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "start")
    model = load_classifier(job.inputs["start"], task, place, seed=knobs.seed)
    require_served(model_type_of(model.config))
    require_all_heads(model)
    learning = Learning(job, knobs, task, model, tokenizer)
    loss, epoch = learning.loss_and_epochs()
    with task.head.start_from_labels(model, lambda: read_rows(job.inputs["rows"], "train", task.head).labels_N):
        before = rounding_on_ranges(model, knobs, loss, epoch) if knobs.rounding == "while-training" else None
        set_dropout(model, knobs.dropout)
        spec = TrainingSpec(
            modules=model,
            epoch=epoch,
            loss=loss,
            pad=tokenizer.pad_token_id,
            begin=(lambda step, total: None) if before is None else before.begin,
            after_step=() if before is None else (before.after_step,),
        )
        facts = train(job, knobs, spec, place)
    served = before or rounding_on_ranges(model, knobs, loss, epoch)
    score = learning.score()
    served.finish()
    save_model(model, tokenizer, job.output)
    return facts | {"selection_score": score, "bits": knobs.weight_bits, "note": note_on_ranges(knobs)}


def require_all_heads(model: Any) -> None:
    """Raise ModelError for a model with pruned heads: its graph leaves them out, and no range is
    that of a product of fewer columns."""
    if has_silent_heads(model):
        raise ModelError(
            "heads of this model were pruned, and its graph leaves them out, so that trained ranges would belong to "
            "other matrices; set ranges: dynamic, or make it from a model with all of its heads"
        )


def rounding_on_ranges(
    model: Any, knobs: StaticQuantizationSlice, loss: Callable[[Indices], Loss], epoch: Callable[[int], Epoch]
) -> FixedRanges:
    """Let a model compute as its graph, with ranges that are measured now."""

    def read_batches() -> None:
        first = epoch(0)
        for rows_B in first.batches[:BATCHES_MEASURED]:
            loss(Indices(first, rows_B))

    was_training = model.training
    model.eval()
    ranges = measured_ranges(model, knobs.format, read_batches)
    model.train(was_training)
    learns = knobs.ranges == "trained"
    return FixedRanges(model, knobs.format, ranges, seven_bits=knobs.seven_bits, learns=learns)


def note_on_ranges(knobs: StaticQuantizationSlice) -> str:
    """Return a sentence on the grid."""
    when = "rounded in training" if knobs.rounding == "while-training" else "rounded after training"
    return f"weights of {knobs.codes} bits for {knobs.format}, {when}, with {knobs.ranges} static ranges"
