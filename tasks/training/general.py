"""General distillation: a student learns the pretrained teacher's inner layers on general text, before any task is known.

Method: Jiao et al. 2019, TinyBERT, arXiv:1909.10351.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tasks.job import Job
from tasks.training.batches import by_length, plan
from tasks.training.corpora import learning_rows, read_corpus
from tasks.training.loop import Course, train
from tasks.training.matching import Matcher
from tasks.training.precision import arithmetic, device, make_deterministic, store_as_multiplied
from tasks.training.rows import Encoded, collate, load_tokenizer
from tasks.training.students import build_student, freeze, load_encoder, save_model, set_dropout


def distill_general(job: Job) -> dict[str, Any]:
    """Distil the encoder in ``base`` into a student of shape ``knobs.shape`` on ``corpus``; the projections are dropped at the end."""
    knobs, place = job.knobs, device()
    make_deterministic(knobs.seed)
    teacher = freeze(load_encoder(job.inputs["base"], place))
    tokenizer = load_tokenizer(job.inputs["base"])
    student = build_student(knobs.start, teacher, knobs.shape, seed=knobs.seed).requires_grad_(True)
    set_dropout(student, knobs.dropout)
    matcher, encoded = Matcher(student, teacher, knobs.matching), read_corpus(job.inputs["corpus"])
    learned, held = learning_rows(encoded)
    matcher.prove(job, collate(encoded, learned[:2], tokenizer.pad_token_id, place))
    store_as_multiplied(teacher, knobs.precision)
    lengths = encoded.lengths_N[learned]
    course = Course(
        modules=matcher.modules,
        batches=lambda epoch: [
            learned[batch] for batch in plan(lengths, size=knobs.batch_size, tokens=knobs.batch_tokens, seed=knobs.seed, epoch=epoch)
        ],
        loss=lambda rows: matcher.loss(collate(encoded, rows, tokenizer.pad_token_id, place)),
        score=(lambda: -held_loss(matcher, encoded, held, tokenizer.pad_token_id, knobs.precision)) if len(held) else None,
        divisible=knobs.matching.formula == "masked",
    )
    facts = train(job, knobs, course, place)
    save_model(student, tokenizer, job.output)
    return facts | {"layer_map": list(matcher.map.hidden)}


def held_loss(matcher: Matcher, encoded: Encoded, held: np.ndarray, pad: int, precision: str) -> float:
    """Return the mean inner loss on held-back sequences."""
    losses, place = [], matcher.student.device
    for part in by_length(encoded.lengths_N[held], size=32, tokens=8192):
        with torch.no_grad(), arithmetic(precision, place):
            losses.append(float(matcher.loss(collate(encoded, held[part], pad, place))))
    return float(np.mean(losses))
