"""Thresholds of a finished model: tuned on the selection rows, and moved into the bias of its head.

Afterwards an output is positive where its label applies, so that every user of the plain folder or of an export decides
as the tuned model does. The config states the thresholds as ``limbeck_thresholds``: the log-odds of a threshold, added
to an output, give back the log-odds of the trained model. Shape letters: N rows, C outputs.
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
from tasks.training.data.rows import read_rows, task_and_tokenizer
from tasks.training.models.students import load_classifier, save_model
from tasks.training.precision import device, make_deterministic
from tasks.training.selection import all_outputs, selection_score

BestThresholds = Callable[[np.ndarray, np.ndarray, str], np.ndarray]
"""Returns the threshold of each output [C], as a probability, from logits [N, C] and targets [N] of the same rows, and
the metric that decides."""

THRESHOLDS: dict[str, BestThresholds] = {"multi-label": thresholds_of_sets}
"""How thresholds are chosen, by the name of the task type, for types that have some (``TaskType.has_thresholds``)."""
LARGEST_ERROR = 1e-3
"""By how much outputs may differ from those that a moved bias should give."""


def write_thresholds(job: Job) -> dict[str, object]:
    """Write ``base`` with thresholds; return its score on the selection rows before and after.

    Raises DataError where there are no selection rows, ModelError for a head whose bias cannot be moved.
    """
    knobs = job.read(ThresholdSlice)
    make_deterministic(0)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "base")
    model = load_classifier(job.inputs["base"], task, device()).eval()
    held, answers = read_rows(job.inputs["rows"], "selection", task.head), ANSWERS[knobs.task_type]
    if not len(held):
        raise DataError("thresholds are tuned on selection rows, and there are none; set data.selection_rows")
    encoded = held.tokens(tokenizer, knobs.max_length)
    before = all_outputs(model, answers.outputs, encoded, tokenizer.pad_token_id, precision="fp32")
    (output,) = answers.outputs
    thresholds_C = THRESHOLDS[knobs.task_type](before[output.name], held.labels_N, knobs.metric)
    moved_C = np.log(thresholds_C) - np.log1p(-thresholds_C)
    lower_bias(model, moved_C)
    after = all_outputs(model, answers.outputs, encoded, tokenizer.pad_token_id, precision="fp32")
    if np.abs(after[output.name] - (before[output.name] - moved_C)).max() > LARGEST_ERROR:
        raise ModelError(f"the bias of a {model.config.model_type} model's head does not move its outputs alone")
    model.config.limbeck_thresholds = [round(float(one), 6) for one in thresholds_C]
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
        raise ModelError(f"the head of a {model.config.model_type} model has no bias that could hold thresholds")
    with torch.no_grad():
        linears[-1].bias.sub_(torch.as_tensor(moved_C).to(linears[-1].bias))
