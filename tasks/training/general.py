"""General distillation: a student learns from the pretrained teacher on general text, before any task is known.

Methods: relations, Wang et al. 2020, MiniLMv2, arXiv:2012.15828; inner layers, Jiao et al. 2019, TinyBERT, arXiv:1909.10351; the triple loss,
Sanh et al. 2019, DistilBERT, arXiv:1910.01108.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tasks.job import Job
from tasks.training.batches import by_length, plan
from tasks.training.corpora import learning_rows, read_corpus
from tasks.training.lesson import Lesson, Objective
from tasks.training.loop import Course, train
from tasks.training.objectives import objective_of
from tasks.training.precision import arithmetic, device, make_deterministic, store_as_multiplied
from tasks.training.rows import Encoded, collate, load_tokenizer, pads_left
from tasks.training.students import build_student, freeze, load_encoder, load_masked_lm, save_model, set_dropout


def distill_general(job: Job) -> dict[str, Any]:
    """Distil the pretrained model in ``base`` into a student of shape ``knobs.shape`` on ``corpus``; what only training needs is dropped at the end."""
    knobs, place = job.knobs, device()
    make_deterministic(knobs.seed)
    tokenizer = load_tokenizer(job.inputs["base"])
    encoded = read_corpus(job.inputs["corpus"], left=pads_left(tokenizer))
    teacher = freeze(load_masked_lm(job.inputs["base"], place) if knobs.method == "triple" else load_encoder(job.inputs["base"], place))
    student = build_student(knobs.start, teacher, knobs.shape, seed=knobs.seed).requires_grad_(True)
    set_dropout(student, knobs.dropout)
    objective = objective_of(Lesson(student, teacher, knobs, tokenizer, text=encoded))
    learned, held = learning_rows(encoded)
    objective.prove(job, collate(encoded, learned[:2], tokenizer.pad_token_id, place))
    store_as_multiplied(teacher, knobs.precision)
    lengths = encoded.lengths_N[learned]
    course = Course(
        modules=objective.modules,
        batches=lambda epoch: [
            learned[batch] for batch in plan(lengths, size=knobs.batch_size, tokens=knobs.batch_tokens, seed=knobs.seed, epoch=epoch)
        ],
        loss=lambda rows: objective.loss(collate(encoded, rows, tokenizer.pad_token_id, place)),
        score=(lambda: -held_loss(objective, encoded, held, tokenizer.pad_token_id, knobs.precision, place)) if len(held) else None,
        begin=objective.begin,
        divisible=objective.divisible,
    )
    facts = train(job, knobs, course, place) | objective.finish()
    save_model(student, tokenizer, job.output)
    return facts


def held_loss(objective: Objective, encoded: Encoded, held: np.ndarray, pad: int, precision: str, place: torch.device) -> float:
    """Return the mean inner loss on held-back sequences."""
    losses = []
    for part in by_length(encoded.lengths_N[held], size=32, tokens=8192):
        with torch.no_grad(), arithmetic(precision, place):
            losses.append(float(objective.loss(collate(encoded, held[part], pad, place))))
    return float(np.mean(losses))
