"""General distillation: a student learns from the pretrained teacher on general text, before any task is known.

Methods: relations, Wang et al. 2020, MiniLMv2, arXiv:2012.15828; inner layers, Jiao et al. 2019, TinyBERT,
arXiv:1909.10351; the triple loss, Sanh et al. 2019, DistilBERT, arXiv:1910.01108.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tasks.engine.job import Job
from tasks.recipe.slices import GeneralSlice
from tasks.training.data.batches import by_length, plan
from tasks.training.data.corpora import learning_rows, longest_sequence, read_corpus
from tasks.training.data.encoded import Encoded, collate, pads_left
from tasks.training.data.epochs import Epoch
from tasks.training.data.rows import load_tokenizer
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.embedding_fit import learn_embeddings
from tasks.training.models.students import build_student, freeze, load_encoder, load_masked_lm, save_model, set_dropout
from tasks.training.objectives.context import DistillationContext, Objective
from tasks.training.objectives.objectives import objective_of
from tasks.training.precision import arithmetic, device, make_deterministic, store_as_multiplied
from tasks.training.steps.batch_loss import BatchInputs, BatchLoss


def distill_general(job: Job) -> dict[str, object]:
    """Distil the pretrained model in ``base`` into a student of shape ``knobs.shape`` on ``corpus``; save the student
    without the parts that only training needs."""
    knobs, place = job.read(GeneralSlice), device()
    make_deterministic(knobs.seed)
    tokenizer = load_tokenizer(job.inputs["base"])
    encoded = read_corpus(job.inputs["corpus"], left=pads_left(tokenizer))
    teacher = freeze(
        load_masked_lm(job.inputs["base"], place) if knobs.predicts_words else load_encoder(job.inputs["base"], place)
    )
    shape: Any = knobs.shape
    student = build_student(knobs.start, teacher, shape, seed=knobs.seed).requires_grad_(True)
    if knobs.start == "albert":
        learned, steps = learning_rows(encoded)[0], getattr(shape, "fit_steps", None)
        learn_embeddings(student, teacher, encoded, learned, tokenizer.pad_token_id, steps=steps, seed=knobs.seed)
    set_dropout(student, knobs.dropout)
    longest = longest_sequence(job.inputs["corpus"])
    objective = objective_of(DistillationContext(student, teacher, knobs, tokenizer, text=encoded, longest=longest))
    objective.check_capture(job, collate(encoded, learning_rows(encoded)[0][:2], tokenizer.pad_token_id, place))
    store_as_multiplied(teacher, knobs.precision)
    spec = general_spec(objective, encoded, tokenizer.pad_token_id, knobs, place)
    facts = train(job, knobs, spec, place) | objective.finish()
    save_model(student, tokenizer, job.output)
    return facts


def general_spec(
    objective: Objective, encoded: Encoded, pad: int, knobs: GeneralSlice, place: torch.device
) -> TrainingSpec:
    """Return the training spec for general text, with a score on the sequences that are held back."""
    learned, held = learning_rows(encoded)
    lengths = encoded.padded_to(objective.width)[learned]
    options = {"size": knobs.batch_size, "tokens": knobs.batch_tokens, "seed": knobs.seed}
    return TrainingSpec(
        modules=objective.modules,
        epoch=lambda number: Epoch(
            number, encoded, [learned[batch] for batch in plan(lengths, epoch=number, **options)]
        ),
        loss=BatchLoss(
            lambda indices: BatchInputs(collate(encoded, indices.rows_B, pad, place, objective.width)),
            lambda given: objective.loss(given.batch),
        ),
        repeats=objective.repeats,
        score=(lambda: -held_loss(objective, encoded, held, pad, knobs, place)) if len(held) else None,
        begin=objective.begin,
        after_step=(objective.after_step,),
        phases=objective.phases,
    )


def held_loss(
    objective: Objective, encoded: Encoded, held: np.ndarray, pad: int, knobs: GeneralSlice, place: torch.device
) -> float:
    """Return the mean inner loss on held-back sequences.

    An objective that draws masked words draws the same ones at every evaluation; otherwise the choice between
    checkpoints would depend on the draw. Masks are drawn on the CPU; the random state of the training is restored
    afterwards.
    """
    losses = []
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(knobs.seed)
        for part in by_length(encoded.padded_to(objective.width)[held], size=32, tokens=8192):
            with torch.no_grad(), arithmetic(knobs.precision, place):
                losses.append(float(objective.loss(collate(encoded, held[part], pad, place, objective.width)).mean()))
    return float(np.mean(losses))
