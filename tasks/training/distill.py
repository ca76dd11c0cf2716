"""Task distillation in two phases: inner layers first, then the teacher's answers.

Methods: Jiao et al. 2019, TinyBERT, arXiv:1909.10351; Hinton et al. 2015, soft targets, arXiv:1503.02531.
``objectives.py`` lists the other objectives of the inner phase. Patience in addition to the answers: Sun et al. 2019,
PKD, arXiv:1908.09355.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.losses.means import Loss
from tasks.methods.losses.patience import patience_layers, patience_loss
from tasks.recipe.slices import DropSlice, IntermediateSlice, PredictionSlice
from tasks.recipe.training import SeededTraining
from tasks.task_types.heads import HEADS
from tasks.training.answers import Answers, LiveAnswers, summary_of
from tasks.training.data.augmented_rows import AugmentedRows
from tasks.training.data.contributions import read_contributions
from tasks.training.data.encoded import Encoded, collate
from tasks.training.data.epochs import Epoch, Indices, planned
from tasks.training.data.rows import Rows, Task, load_tokenizer, read_rows, read_task, student_rows
from tasks.training.data.same_pieces import is_answered_in_texts, other_signals
from tasks.training.data.substitutes import read_substitutes
from tasks.training.data.written import require_ends, tell_of_cut_texts
from tasks.training.finetune import train_with_labels, truncated
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.embedding_fit import learn_embeddings
from tasks.training.models.students import build_student, freeze, load_classifier, save_model, set_dropout
from tasks.training.objectives.capture import Capture
from tasks.training.objectives.context import DistillationContext, Objective
from tasks.training.objectives.objectives import objective_of
from tasks.training.objectives.signals import Recorded, TeacherSignals, recorded
from tasks.training.objectives.trimmed_teacher import pieces_of_student, read_alike
from tasks.training.precision import device, make_deterministic, store_as_multiplied
from tasks.training.selection import selector
from tasks.training.steps.batch_loss import BatchInputs, BatchLoss
from tasks.training.writing.answer_texts import rows_with_texts


@dataclass(frozen=True)
class TeacherStudent:
    """The models of a distillation: the frozen teacher and the student before training, each with its tokenizer."""

    task: Task
    teacher: Any
    teachers_tokenizer: Any
    student: Any
    tokenizer: Any


def distill_intermediate(job: Job) -> dict[str, object]:
    """First phase: the student's inner layers learn to match the fine-tuned teacher's on the task's text."""
    knobs, place = job.read(IntermediateSlice), device()
    make_deterministic(knobs.seed)
    pair = pair_of(job, knobs, place)
    every = student_rows(job, pair.task, transfer_alone=knobs.transfer_alone)
    rows = comparable_rows(job, pair, every, knobs.max_length)
    augmented = AugmentedRows(rows, pair.tokenizer, knobs.max_length, knobs.seed, knobs.sampling, substitutes(job))
    context = DistillationContext(
        pair.student,
        pair.teacher,
        knobs,
        pair.tokenizer,
        targets=rows.targets_in(augmented.encoded),
        head=pair.task.head,
        longest=knobs.max_length,
    )
    objective = objective_of(context)
    objective.check_capture(job, collate(first_rows(augmented), [0, 1], pair.tokenizer.pad_token_id, place))
    store_as_multiplied(pair.teacher, knobs.precision)
    spec = inner_spec(objective, augmented, knobs, recorded(job, augmented.ids), place)
    facts = train(job, knobs, spec, place) | objective.finish()
    save_model(pair.student, pair.tokenizer, job.output)
    return facts if len(rows) == len(every) else facts | {"rows_left_out": len(every) - len(rows)}


def comparable_rows(job: Job, pair: TeacherStudent, rows: Rows, max_length: int) -> Rows:
    """Return the rows whose tokens can be compared one by one: all of them, or where the student has fewer pieces than
    its teacher those that both divide alike; the teacher then reads the student's pieces."""
    ours, theirs = (one.get_vocab() for one in (pair.tokenizer, pair.teachers_tokenizer))
    kept = None if ours == theirs else pieces_of_student(ours, theirs)
    if kept is None:
        same_vocabulary(pair)
        return rows
    return read_alike(job, pair.teacher, pair.tokenizer, pair.teachers_tokenizer, rows, max_length, kept)


def inner_spec(
    objective: Objective, augmented: AugmentedRows, knobs: IntermediateSlice, kept: Recorded | None, place: torch.device
) -> TrainingSpec:
    """Return the training spec of the first phase; the teacher's inner layers are computed in each step, or read from
    its recorded signals where rows have their own text."""
    pad = augmented.tokenizer.pad_token_id
    signals = None if kept is None else TeacherSignals(kept, objective.of_teacher, pad)

    def read(indices: Indices) -> BatchInputs:
        return BatchInputs(collate(indices.epoch.encoded, indices.rows_B, pad, place, objective.width))

    def beside(stored: TeacherSignals, indices: Indices) -> Loss:
        batch = read(indices).batch
        return objective.loss(batch, stored.of(indices, batch))

    live = BatchLoss(read, lambda given: objective.loss(given.batch))

    def tally(indices: Indices) -> dict[str, int]:
        computed = len(indices.rows_B if signals is None else indices.changed())
        return {"teacher_rows_read": len(indices.rows_B) - computed, "teacher_rows_computed": computed}

    return TrainingSpec(
        modules=objective.modules,
        epoch=augmented_epochs(augmented, knobs, objective.width),
        loss=live if signals is None else partial(beside, signals),
        repeats=objective.repeats,
        pad=pad,
        begin=objective.begin,
        after_step=(objective.after_step,),
        phases=objective.phases,
        tally=tally,
    )


def distill_prediction(job: Job) -> dict[str, object]:
    """Second phase: the student learns the teacher's softened answers, its texts, or the labels."""
    knobs, place = job.read(PredictionSlice), device()
    make_deterministic(knobs.seed)
    pair = pair_of(job, knobs, place)
    if knobs.signal != "teacher":
        texts = None if knobs.signal == "labels" else rows_with_texts(job, pair.task, knobs.signal)
        facts = train_with_labels(job, knobs, pair.student, pair.task, pair.tokenizer, texts)
    else:
        facts = train_with_teacher(job, knobs, pair)
    save_model(pair.student, pair.tokenizer, job.output)
    return facts


def train_with_teacher(job: Job, knobs: PredictionSlice | DropSlice, pair: TeacherStudent) -> dict[str, object]:
    """Train a student on the teacher's answers, in place."""
    student, task, tokenizer = pair.student, pair.task, pair.tokenizer
    if task.head.units is not None and task.head.units.are_pieces:
        instead = other_signals(writes=is_answered_in_texts(task.head.units))
        same_vocabulary(pair, "answers to its pieces", instead)
    sampling = knobs.sampling if isinstance(knobs, PredictionSlice) else None
    rows = student_rows(job, task, transfer_alone=knobs.transfer_alone)
    augmented = AugmentedRows(rows, tokenizer, knobs.max_length, knobs.seed, sampling, substitutes(job))
    require_ends(augmented.encoded.written, student)
    tell_of_cut_texts(job, augmented.encoded.written, knobs.max_length)
    held = read_rows(job.inputs["rows"], "selection", task.head)
    set_dropout(student, knobs.dropout)
    store_as_multiplied(pair.teacher, knobs.precision)
    spec = TrainingSpec(
        modules=student,
        epoch=augmented_epochs(augmented, knobs, together=rows.together(knobs.hard_weight)),
        loss=answered_loss(job, knobs, pair, augmented),
        pad=tokenizer.pad_token_id,
        score=selector(
            student,
            task,
            held,
            held.tokens(tokenizer, knobs.max_length),
            tokenizer.pad_token_id,
            knobs,
        ),
        facts=lambda last: {"truncated": truncated(last.encoded, knobs.max_length)},
        repeats=True,
    )
    # Take labels from the task's own rows: transfer text has none, and may be the only training text.
    with task.head.start_from_labels(student, lambda: read_rows(job.inputs["rows"], "train", task.head).labels_N):
        return train(job, knobs, spec, student.device)


def answered_loss(
    job: Job, knobs: PredictionSlice | DropSlice, pair: TeacherStudent, augmented: AugmentedRows
) -> BatchLoss:
    """Return the loss of a batch against the teacher's answers and, if the knobs enable them, against the labels and
    the teacher's summary tokens."""
    student, head, pad = pair.student, pair.task.head, pair.tokenizer.pad_token_id
    patience, formula = (knobs.patience, knobs.formula) if isinstance(knobs, PredictionSlice) else (None, "default")
    depths = student.config.num_hidden_layers, pair.teacher.config.num_hidden_layers
    copied = [] if patience is None else patience_layers(patience.layer_map, *depths)
    answers: Answers | LiveAnswers = LiveAnswers(head, pair.teacher)
    if "answers" in job.inputs:
        answers = Answers(job.inputs["answers"], head, augmented, pair.teacher, pair.teachers_tokenizer, copied)
    capture = Capture(student, head, hidden=range(1, len(copied) + 1))
    targets = torch.from_numpy(augmented.rows.targets_in(augmented.encoded)).to(student.device)
    loss_of = partial(
        HEADS[knobs.task_type].teacher_loss,
        temperature=knobs.temperature,
        hard_weight=knobs.hard_weight,
        formula=formula,
    )

    def read(indices: Indices) -> BatchInputs:
        batch = collate(indices.epoch.encoded, indices.rows_B, pad, student.device)
        theirs = answers.of(indices, batch)
        summaries = {} if theirs.summaries_BLD is None else {"summaries": theirs.summaries_BLD}
        return BatchInputs(batch, {"targets": targets[batch.at_B], **summaries}, theirs.outputs)

    def loss(given: BatchInputs) -> Loss:
        batch, beside = given.batch, given.beside
        ours = capture(**batch.inputs(student))
        total = loss_of(batch.answers(ours.outputs), given.outputs, beside["targets"])
        if patience is None or "summaries" not in beside:
            return total
        own_BLD = torch.stack([summary_of(student, ours.hidden[layer], batch.mask_BT) for layer in capture.hidden], 1)
        return total + patience.weight * patience_loss(own_BLD, beside["summaries"], normalise=patience.normalise)

    return BatchLoss(read, loss)


def pair_of(job: Job, knobs: IntermediateSlice | PredictionSlice, place: torch.device) -> TeacherStudent:
    """Load the teacher, the student and their tokenizers."""
    task = read_task(job.inputs["rows"], knobs.task_type)
    teacher = load_classifier(job.inputs["teacher"], task, place)
    reads = load_tokenizer(job.inputs["teacher"], task.truncate)
    if "start" in job.inputs:
        student, tokenizer = (
            load_classifier(job.inputs["start"], task, place, seed=knobs.seed),
            load_tokenizer(job.inputs["start"], task.truncate),
        )
    else:
        # Layers come from the fine-tuned teacher, or from the teacher's pretrained base if that is an input.
        origin = load_classifier(job.inputs["base"], task, place, seed=knobs.seed) if "base" in job.inputs else teacher
        assert knobs.start is not None and knobs.shape is not None  # None only if an earlier stage built the student
        shape: Any = knobs.shape
        student, tokenizer = (
            build_student(knobs.start, origin, shape, seed=knobs.seed, contributions=contributions(job)),
            reads,
        )
        if knobs.start == "albert":
            fit_to_rows(job, knobs, task, student, origin, tokenizer)
    set_dropout(student, knobs.dropout)
    return TeacherStudent(task, freeze(teacher), reads, student.requires_grad_(True), tokenizer)


def fit_to_rows(
    job: Job, knobs: IntermediateSlice | PredictionSlice, task: Task, student: Any, origin: Any, tokenizer: Any
) -> None:
    """Let narrow embeddings of a new student learn those of its origin on the training texts, in place."""
    encoded = student_rows(job, task, transfer_alone=knobs.transfer_alone).tokens(tokenizer, knobs.max_length)
    steps, rows_N = getattr(knobs.shape, "fit_steps", None), np.arange(len(encoded.lengths_N))
    learn_embeddings(student, origin, encoded, rows_N, tokenizer.pad_token_id, steps=steps, seed=knobs.seed)


def contributions(job: Job) -> list[float] | None:
    """Return the measured contributions of layers, if they are an input of the job."""
    folder = job.inputs.get("contributions")
    return read_contributions(folder) if folder else None


def same_vocabulary(
    pair: TeacherStudent, compared: str = "layers", instead: str = "the teacher's predictions only (stages: [])"
) -> None:
    """Raise ModelError if student and teacher have different vocabularies: their tokens could not be compared one by
    one."""
    ours, theirs = (tokenizer.get_vocab() for tokenizer in (pair.tokenizer, pair.teachers_tokenizer))
    if ours != theirs:
        raise ModelError(
            f"the student's tokenizer ({len(ours):,} tokens) is not its teacher's ({len(theirs):,}), so their "
            f"{compared} cannot be compared token by token; "
            "start the student from a model with the same tokenizer, or train it on "
            f"{instead}"
        )


def substitutes(job: Job) -> Any:
    """Return the stored substitutes; none if the student uses no augmentation."""
    return read_substitutes(job.inputs.get("candidates"))


def augmented_epochs(
    augmented: AugmentedRows, knobs: SeededTraining, width: int | None = None, together: np.ndarray | None = None
) -> Callable[[int], Epoch]:
    """Return a function that plans an epoch over that epoch's text, padded to ``width`` if it is given; rows that come
    ``together`` stay so."""

    def epoch(number: int) -> Epoch:
        encoded, variants = augmented.at(number)
        return planned(number, encoded, knobs, width=width, variants=variants, together=together)

    return epoch


def first_rows(augmented: AugmentedRows) -> Encoded:
    """Return the tokens of the first two rows, for the check of a capture."""
    if augmented.encoded.written is not None:  # a decoder reads the texts, too
        return augmented.encoded
    return augmented.rows.texts_alone(augmented.tokenizer, augmented.max_length, 2)
