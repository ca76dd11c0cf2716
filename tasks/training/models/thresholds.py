"""Thresholds of a finished model: tuned on the selection rows, and stated in its config.

Thresholds of labels are moved into the bias of the head: afterwards an output is positive where its label applies, so
that every user of the plain folder or of an export decides as the tuned model does. The config states them as
``limbeck_thresholds``: the log-odds of a threshold, added to an output, give back the log-odds of the trained model.
Shape letters: N rows, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from tasks.engine.job import Job
from tasks.errors import DataError, ModelError
from tasks.recipe.slices import ThresholdSlice
from tasks.task_types.answers import ANSWERS
from tasks.task_types.multi_label.thresholds import thresholds_of_sets
from tasks.task_types.spans.passage import STATED_THRESHOLD
from tasks.task_types.spans.thresholds import threshold_of_none
from tasks.training.data.rows import read_rows, task_and_tokenizer
from tasks.training.models.students import load_classifier, save_model
from tasks.training.precision import device, make_deterministic
from tasks.training.selection import all_outputs, selection_score

Outputs = dict[str, np.ndarray]
"""The outputs of a model on the selection rows by name, rows first."""
Settle = Callable[[Any, Outputs, np.ndarray, str, Callable[[], Outputs]], Outputs]
"""Writes the best thresholds into a model, from its outputs, the targets [N] of the same rows, and the metric that
decides; asks the model again by the function, and returns its outputs. Raises ModelError where it cannot."""
LARGEST_ERROR = 1e-3
"""By how much outputs may differ from those that a moved bias should give."""


def settle_in_bias(
    model: Any, before: Outputs, labels_N: np.ndarray, metric: str, ask_again: Callable[[], Outputs]
) -> Outputs:
    """Move the thresholds of labels into the bias of a model's head."""
    (logits_NC,) = before.values()
    thresholds_C = thresholds_of_sets(logits_NC, labels_N, metric)
    moved_C = np.log(thresholds_C) - np.log1p(-thresholds_C)
    lower_bias(model, moved_C)
    after = ask_again()
    if np.abs(next(iter(after.values())) - (logits_NC - moved_C)).max() > LARGEST_ERROR:
        raise ModelError(
            f"the bias of the head of a model of type {model.config.model_type} does not move its outputs alone"
        )
    model.config.limbeck_thresholds = [round(float(one), 6) for one in thresholds_C]
    return after


def settle_in_config(
    model: Any, before: Outputs, labels_N: np.ndarray, metric: str, ask_again: Callable[[], Outputs]
) -> Outputs:
    """State in a model's config above which score of none a question has no answer."""
    setattr(model.config, STATED_THRESHOLD, round(threshold_of_none(before, labels_N, metric), 6))
    return ask_again()


THRESHOLDS: dict[str, Settle] = {"multi-label": settle_in_bias, "spans": settle_in_config}
"""How thresholds are chosen and written, by the name of the task type, for types that have some
(``TaskType.has_thresholds``)."""


def write_thresholds(job: Job) -> dict[str, object]:
    """Write ``base`` with thresholds; return its score on the selection rows before and after.

    Raises DataError where there are no selection rows, ModelError for a model that cannot hold thresholds.
    """
    knobs = job.read(ThresholdSlice)
    make_deterministic(0)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "base")
    model = load_classifier(job.inputs["base"], task, device()).eval()
    held, answers = read_rows(job.inputs["rows"], "selection", task.head), ANSWERS[knobs.task_type]
    if not len(held):
        raise DataError("thresholds are tuned on selection rows, and there are none; set data.selection_rows")
    encoded = held.tokens(tokenizer, knobs.max_length)

    def ask() -> Outputs:
        return all_outputs(model, answers.outputs, encoded, tokenizer.pad_token_id, precision="fp32")

    before = ask()
    after = THRESHOLDS[knobs.task_type](model, before, held.labels_N, knobs.metric, ask)
    save_model(model, tokenizer, job.output)
    scores = [
        selection_score(answers, knobs.metric, answers.decide(outputs), held.labels_N, held.groups_N)
        for outputs in (before, after)
    ]
    return {"selection_score": scores[1], "selection_score_at_half": scores[0], "selection_count": len(held)}


def lower_bias(model: Any, moved_C: np.ndarray) -> None:
    """Subtract a number from each output, in the bias of the last linear layer of the model's head. Raises ModelError
    where there is none of that size."""
    encoder = f"{model.base_model_prefix}."
    linears = [
        layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and not name.startswith(encoder) and layer.out_features == len(moved_C)
    ]
    if not linears or linears[-1].bias is None:
        raise ModelError(
            f"the head of a model of type {model.config.model_type} has no bias that could hold thresholds"
        )
    with torch.no_grad():
        linears[-1].bias.sub_(torch.as_tensor(moved_C).to(linears[-1].bias))
