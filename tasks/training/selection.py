"""Checkpoint selection: one score on the held-back selection rows, higher is better.

The scoring stage evaluates finished models; this file ranks checkpoints of one training, by the same metrics
(``tasks/metrics``).
Shape letters: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from tasks.engine.job import Job
from tasks.errors import RecipeError
from tasks.metrics.definition import metric_value
from tasks.recipe.makers.slices import JudgedShapesSlice, NeuronSlice, SubNetworkSlice, VocabularySlice
from tasks.recipe.slices import DropSlice, PredictionSlice, TeacherSlice
from tasks.task_types.answers import ANSWERS
from tasks.task_types.common_head import words_at_a_token
from tasks.task_types.interfaces import Answers
from tasks.task_types.types import Output
from tasks.task_types.units import by_row
from tasks.training.data.batches import without_gradients
from tasks.training.data.encoded import Encoded, by_number, collate
from tasks.training.data.rows import Rows, Task, read_rows
from tasks.training.data.written_texts import greedy_outputs
from tasks.training.precision import arithmetic


def selection_score(
    answers: Answers,
    metric: str,
    predictions_N: np.ndarray,
    labels_N: np.ndarray,
    groups_N: np.ndarray | None = None,
) -> float:
    """Return the score of predictions by a metric of their task type; higher is better. ``groups_N`` are rows that are
    judged together, if there are any.

    Raises RecipeError for a metric that the task type does not have.
    """
    if metric not in answers.metrics:
        raise RecipeError(f"unknown metric {metric!r}; choose one of {', '.join(sorted(answers.metrics))}")
    found = metric_value(answers.metrics[metric], predictions_N, labels_N, groups_N)
    return -found if answers.metrics[metric].lower_is_better else found


def all_outputs(
    model: Any, outputs: Sequence[Output], encoded: Encoded, pad: int, *, precision: str
) -> dict[str, np.ndarray]:
    """Return the named outputs [N, C] of every row, in float32 and in row order; where rows have several answers, an
    array [N] of arrays, those of the units of each row, and all that is concluded from them; of a model that writes,
    its texts."""
    if encoded.written is not None:
        return greedy_outputs(model, outputs[0].name, encoded, encoded.written, pad, precision=precision)
    place, parts, order = model.device, list[list[np.ndarray]](), []
    was_training = model.training
    model.eval()
    for rows in without_gradients(encoded.lengths_N, place, words_at_a_token(model)):
        with torch.inference_mode(), arithmetic(precision, place):
            batch = collate(encoded, rows, pad, place)
            found = model(**batch.inputs(model))
            answers = batch.answers({one.name: found[one.name].float() for one in outputs})
        parts.append([answers[one.name].cpu().numpy() for one in outputs])
        order.append(batch.numbers)
    model.train(was_training)
    values = {
        one.name: by_number(each, order, encoded.answers)
        for one, each in zip(outputs, zip(*parts, strict=True), strict=True)
    }
    windows = encoded.windows
    if windows is None:
        return values
    found_rows = {name: by_row(one, windows.counts_N) for name, one in values.items()}
    return found_rows if windows.conclude is None else windows.conclude(found_rows, model.config.to_dict())


def selector(
    model: Any,
    task: Task,
    rows: Rows,
    encoded: Encoded,
    pad: int,
    knobs: TeacherSlice | PredictionSlice | DropSlice,
) -> Callable[[], float] | None:
    """Return a function that scores the model on the selection rows by the headline metric, or by the one that
    ``choose_by`` names; None if there are no such rows."""
    if not len(rows):
        return None
    answers = ANSWERS[knobs.task_type]
    metric = task.headline if knobs.choose_by == "headline" else knobs.choose_by
    asked = partial(all_outputs, model, answers.outputs, encoded, pad, precision=knobs.precision)
    return lambda: selection_score(answers, metric, answers.decide(asked()), rows.labels_N, rows.groups_N)


def scorer_of_finished(
    job: Job,
    knobs: VocabularySlice | NeuronSlice | SubNetworkSlice | JudgedShapesSlice,
    task: Task,
    tokenizer: Any,
) -> Callable[[Any], float | None]:
    """Return a function that scores models that were not trained by the headline metric on the selection rows, which
    are read once; it returns None if there are no such rows."""
    rows = read_rows(job.inputs["rows"], "selection", task.head)
    if not len(rows):
        return lambda model: None
    answers, encoded = ANSWERS[knobs.task_type], rows.tokens(tokenizer, knobs.max_length)

    def score(model: Any) -> float:
        outputs = all_outputs(model, answers.outputs, encoded, tokenizer.pad_token_id, precision="fp32")
        return selection_score(answers, task.headline, answers.decide(outputs), rows.labels_N, rows.groups_N)

    return score


def score_of_finished(
    job: Job,
    knobs: VocabularySlice | NeuronSlice | SubNetworkSlice,
    task: Task,
    model: Any,
    tokenizer: Any,
) -> float | None:
    """Return the headline score on the selection rows of one model that was not trained; None if there are no such
    rows."""
    return scorer_of_finished(job, knobs, task, tokenizer)(model)
