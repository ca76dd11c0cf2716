"""Fine-tuning with labels, for the teacher and for every labels-only baseline.

Source: Devlin et al. 2018, BERT, arXiv:1810.04805.
"""

from __future__ import annotations

from typing import Any

import torch

from tasks.engine.job import Job
from tasks.errors import DataError
from tasks.methods.losses.means import Loss
from tasks.ports.rows.row_files import read_beginnings
from tasks.recipe.slices import DropSlice, PredictionSlice, TeacherSlice
from tasks.task_types.answers import ANSWERS
from tasks.task_types.heads import HEADS
from tasks.training.data.encoded import Encoded, collate
from tasks.training.data.epochs import Indices, planned
from tasks.training.data.rows import Rows, Task, read_rows, task_and_tokenizer
from tasks.training.data.written import require_ends, tell_of_cut_texts
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.students import load_classifier, save_model, set_dropout
from tasks.training.objectives.capture import outputs_of
from tasks.training.precision import device, make_deterministic
from tasks.training.selection import all_outputs, selection_score, selector
from tasks.training.steps.batch_loss import BatchInputs, BatchLoss


def finetune(job: Job) -> dict[str, object]:
    """Fine-tune the model in ``base`` on ``rows`` and write a checkpoint; return its scores on the selection rows, and
    the score of guessing."""
    knobs, place = job.read(TeacherSlice), device()
    make_deterministic(knobs.seed)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "base")
    model = load_classifier(job.inputs["base"], task, place, seed=knobs.seed)
    if (state := HEADS[knobs.task_type].state_prompts) is not None:
        state(model.config, *read_beginnings(job.inputs["rows"], "prompts"))
    facts = {} if knobs.already_finetuned else train_with_labels(job, knobs, model, task, tokenizer)
    facts |= score_teacher(job, knobs, model, task, tokenizer)
    save_model(model, tokenizer, job.output)
    return facts


def train_with_labels(
    job: Job,
    knobs: TeacherSlice | PredictionSlice | DropSlice,
    model: Any,
    task: Task,
    tokenizer: Any,
    own_rows: Rows | None = None,
) -> dict[str, object]:
    """Train a model in place on the labelled training rows, or on rows of its own."""
    rows = own_rows or read_rows(job.inputs["rows"], "train", task.head)
    encoded = rows.tokens(tokenizer, knobs.max_length)
    tell_of_cut_texts(job, encoded.written, knobs.max_length)
    held = read_rows(job.inputs["rows"], "selection", task.head)
    together = rows.together()
    set_dropout(model, knobs.dropout)
    spec = TrainingSpec(
        modules=model,
        epoch=lambda number: planned(number, encoded, knobs, together=together),
        loss=labelled_loss(model, task, rows, encoded, tokenizer.pad_token_id),
        pad=tokenizer.pad_token_id,
        score=selector(
            model,
            task,
            held,
            held.tokens(tokenizer, knobs.max_length),
            tokenizer.pad_token_id,
            knobs,
        ),
        repeats=True,
    )
    with task.head.start_from_labels(model, lambda: rows.labels_N):
        facts = train(job, knobs, spec, model.device)
    return facts | {"truncated": truncated(encoded, knobs.max_length)}


def labelled_loss(model: Any, task: Task, rows: Rows, encoded: Encoded, pad: int) -> BatchLoss:
    """Return the loss of a batch against its labels."""
    if len(rows) == 0:
        raise DataError("the train split has no labelled rows; check the label column")
    require_ends(encoded.written, model)
    targets = torch.from_numpy(rows.targets_in(encoded)).to(model.device)

    def read(indices: Indices) -> BatchInputs:
        batch = collate(encoded, indices.rows_B, pad, model.device)
        return BatchInputs(batch, {"targets": targets[batch.at_B]})

    def loss(given: BatchInputs) -> Loss:
        outputs = given.batch.answers(outputs_of(task.head, model(**given.batch.inputs(model))))
        return task.head.label_loss(outputs, given.beside["targets"])

    return BatchLoss(read, loss)


def score_teacher(job: Job, knobs: TeacherSlice, model: Any, task: Task, tokenizer: Any) -> dict[str, object]:
    """Return a finished teacher's score on the selection rows (on train rows if none are held back), the facts by which
    it is compared with guessing, and the number of rows."""
    held, split = read_rows(job.inputs["rows"], "selection", task.head), "selection"
    if not len(held):
        held, split = read_rows(job.inputs["rows"], "train", task.head), "train"
    encoded = held.tokens(tokenizer, knobs.max_length)
    answers = ANSWERS[knobs.task_type]
    outputs = all_outputs(model, answers.outputs, encoded, tokenizer.pad_token_id, precision=knobs.precision)
    predictions_N = answers.decide(outputs)
    return {
        "selection_score": selection_score(answers, task.headline, predictions_N, held.labels_N, held.groups_N),
        "selection_count": len(held),
        "selection_split": split,
        **answers.guess(predictions_N, held.labels_N),
    }


def truncated(encoded: Encoded, max_length: int) -> float:
    """Return the share of rows that reach the length limit (truncated, or exactly as long)."""
    return float((encoded.lengths_N >= max_length).mean())
