"""Task distillation in two phases: inner layers first, then the teacher's answers.

Methods: Jiao et al. 2019, TinyBERT, arXiv:1909.10351; Hinton et al. 2015, soft targets, arXiv:1503.02531.
Shape letters: N rows, B batch, C classes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor

from tasks.errors import ModelError
from tasks.job import Job
from tasks.methods.soft_targets import prediction_loss
from tasks.training.batches import plan
from tasks.training.finetune import train_with_labels, truncated
from tasks.training.loop import Course, train
from tasks.training.matching import Matcher
from tasks.training.precision import device, make_deterministic, store_as_multiplied
from tasks.training.rows import Task, collate, encode, load_tokenizer, read_rows, read_task, rows_by_id, student_rows
from tasks.training.selection import all_logits, selector
from tasks.training.signals import Recorded, recorded
from tasks.training.students import build_student, freeze, load_classifier, save_model, set_dropout
from tasks.training.variants import Varied, read_candidates


def answer(job: Job) -> dict[str, Any]:
    """Ask the teacher once about every row that students will see; write its logits by row id."""
    task, place = read_task(job.inputs["rows"]), device()
    tokenizer = load_tokenizer(job.inputs["teacher"])
    teacher = freeze(load_classifier(job.inputs["teacher"], task, place))
    store_as_multiplied(teacher, job.knobs.precision)
    rows = student_rows(job, task)
    encoded = encode(tokenizer, rows.texts, rows.pairs, job.knobs.max_length)
    logits_NC = all_logits(teacher, encoded, tokenizer.pad_token_id, precision=job.knobs.precision)
    save_file({"ids": rows.ids_N, "logits": logits_NC}, job.output / "answers.safetensors")
    return {"rows": len(rows), "truncated": truncated(encoded, job.knobs.max_length)}


def distill_intermediate(job: Job) -> dict[str, Any]:
    """First phase: the student's inner layers learn the fine-tuned teacher's on the task's own text."""
    knobs, place = job.knobs, device()
    make_deterministic(knobs.seed)
    task, teacher, tokenizer, student = cast(job, place)
    varied = Varied(student_rows(job, task), tokenizer, knobs.max_length, knobs.seed, knobs.sampling, candidates(job))
    matcher = Matcher(student, teacher, knobs.matching)
    matcher.prove(job, collate(varied.at(0), [0, 1], tokenizer.pad_token_id, place))
    store_as_multiplied(teacher, knobs.precision)
    facts = train(job, knobs, matching_course(matcher, varied, knobs, recorded(job, varied.rows.ids_N)), place)
    save_model(student, tokenizer, job.output)
    return facts | {"layer_map": list(matcher.map.hidden)}


def matching_course(matcher: Matcher, varied: Varied, knobs: SimpleNamespace, kept: Recorded | None) -> Course:
    """Return what the first phase learns: the teacher's inner layers, run beside the student's or taken from what was kept of them."""
    pad, place = varied.tokenizer.pad_token_id, matcher.student.device

    def loss(rows: np.ndarray) -> Tensor:
        return matcher.loss(collate(newest(varied), rows, pad, place), None if kept is None else kept.of(rows, place))

    return Course(
        modules=matcher.modules,
        batches=epoch_batches(varied, knobs),
        loss=loss,
        tokens=lambda: newest(varied).ids_S,
        pad=pad,
        divisible=knobs.matching.formula == "masked",
    )


def distill_prediction(job: Job) -> dict[str, Any]:
    """Second phase: the student learns the teacher's softened answers, or plain labels where its signal is labels."""
    knobs, place = job.knobs, device()
    make_deterministic(knobs.seed)
    task, teacher, tokenizer, student = cast(job, place)
    if knobs.signal == "labels":
        facts = train_with_labels(job, knobs, student, task, tokenizer)
    else:
        facts = train_with_teacher(job, knobs, student, teacher, task, tokenizer)
    save_model(student, tokenizer, job.output)
    return facts


def train_with_teacher(job: Job, knobs: SimpleNamespace, student: Any, teacher: Any, task: Task, tokenizer: Any) -> dict[str, Any]:
    """Train a student on the teacher's answers in place."""
    sampling = getattr(knobs, "sampling", None)
    varied = Varied(student_rows(job, task), tokenizer, knobs.max_length, knobs.seed, sampling, candidates(job))
    held = read_rows(job.inputs["rows"], "selection", task.kind)
    set_dropout(student, knobs.dropout)
    store_as_multiplied(teacher, knobs.precision)
    answers = Answers(job, varied, teacher, tokenizer.pad_token_id)
    course = Course(
        modules=student,
        batches=epoch_batches(varied, knobs),
        loss=answered_loss(student, task, answers, knobs),
        tokens=lambda: newest(varied).ids_S,
        pad=tokenizer.pad_token_id,
        score=selector(student, task, held, encode(tokenizer, held.texts, held.pairs, knobs.max_length), tokenizer.pad_token_id, knobs.precision),
    )
    return train(job, knobs, course, student.device) | {"truncated": truncated(newest(varied), knobs.max_length)}


def answered_loss(student: Any, task: Task, answers: Answers, knobs: SimpleNamespace) -> Any:
    """Return the loss of a batch against the teacher's answers and, with ``hard_weight``, the labels."""
    labels_N = torch.from_numpy(answers.varied.rows.labels_N).to(student.device)
    formula = getattr(knobs, "formula", "default")

    def loss(rows: np.ndarray) -> Tensor:
        batch = collate(newest(answers.varied), rows, answers.pad, student.device)
        logits_BC = student(**batch.inputs(student)).logits
        options = {"kind": task.kind, "temperature": knobs.temperature, "hard_weight": knobs.hard_weight, "formula": formula}
        return prediction_loss(logits_BC, answers.of(rows), labels_N[rows], **options)

    return loss


class Answers:
    """The teacher's logits for a batch: looked up for rows as they are, asked afresh for variants only."""

    def __init__(self, job: Job, varied: Varied, teacher: Any, pad: int) -> None:
        self.varied, self.teacher, self.pad = varied, teacher, pad
        stored = load_file(job.inputs["answers"] / "answers.safetensors")
        order = rows_by_id(stored["ids"], varied.rows.ids_N, "answers", "answer-rows")
        self.logits_NC = torch.from_numpy(stored["logits"][order]).to(teacher.device)

    def of(self, rows: np.ndarray) -> Tensor:
        """Return the teacher's logits [B, C] for a batch of rows."""
        logits_BC = self.logits_NC[rows]
        changed = np.flatnonzero(self.varied.changed_N[rows]) if self.varied.changed_N is not None else np.empty(0, dtype=np.int64)
        if not len(changed):
            return logits_BC
        with torch.inference_mode():
            batch = collate(newest(self.varied), rows[changed], self.pad, self.teacher.device)
            fresh_BC = self.teacher(**batch.inputs(self.teacher)).logits.float()
        logits_BC = logits_BC.clone()
        logits_BC[torch.from_numpy(changed).to(logits_BC.device)] = fresh_BC.clone()
        return logits_BC


def cast(job: Job, place: torch.device) -> tuple[Task, Any, Any, Any]:
    """Load who takes part: the task, the frozen teacher, its tokenizer, and the student as it starts."""
    task, knobs = read_task(job.inputs["rows"]), job.knobs
    teacher = load_classifier(job.inputs["teacher"], task, place)
    tokenizer = load_tokenizer(job.inputs["teacher"])
    if "start" in job.inputs:
        student = load_classifier(job.inputs["start"], task, place, seed=knobs.seed)
        same_vocabulary(student, teacher)
    else:
        student = build_student(knobs.start, teacher, knobs.shape, seed=knobs.seed)
    set_dropout(student, knobs.dropout)
    return task, freeze(teacher), tokenizer, student.requires_grad_(True)


def same_vocabulary(student: Any, teacher: Any) -> None:
    """Refuse a student that would read the teacher's token ids in another vocabulary."""
    ours, theirs = student.config.vocab_size, teacher.config.vocab_size
    if ours != theirs:
        raise ModelError(f"the student's vocabulary has {ours:,} tokens and its teacher's {theirs:,}; start the student from a model with the same tokenizer")


def candidates(job: Job) -> Any:
    """Return stored substitutes, where the student uses augmentation."""
    return read_candidates(job.inputs.get("candidates"))


def epoch_batches(varied: Varied, knobs: SimpleNamespace) -> Any:
    """Return a function that plans the batches of an epoch over that epoch's text."""
    options = {"size": knobs.batch_size, "tokens": knobs.batch_tokens, "seed": knobs.seed}
    return lambda epoch: plan(varied.at(epoch).lengths_N, epoch=epoch, **options)


def newest(varied: Varied) -> Any:
    """Return the tokens of the epoch that was planned last."""
    assert varied.encoded is not None
    return varied.encoded
