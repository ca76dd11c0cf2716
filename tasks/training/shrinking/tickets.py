"""One training of a lottery: the first one without a mask, each other from an early step of it under a mask.

Sources: Frankle, Carbin 2018, arXiv:1803.03635; Chen et al. 2020, arXiv:2007.12223: weights of the encoder are rewound,
those of the head are not; optimizer and learning rates begin anew. A rewound training has the steps that the first one
had left at the snapshot, so every model of a lottery has learned for as many.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import parametrize

from tasks.engine.job import Job
from tasks.methods.pruning.tickets import at_random, drawn_anew, ticket
from tasks.methods.pruning.weight_masks import WeightMask
from tasks.recipe.makers.slices import TicketSlice
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.snapshots import read_snapshot
from tasks.training.models.students import load_classifier
from tasks.training.precision import make_deterministic
from tasks.training.shrinking.weight_pruning import ModelInTraining, matrices_of, model_in_training, saved_with_zeros

REWOUND = "rewound"
"""The snapshot of the first training with which all others begin."""


def train_round(job: Job) -> dict[str, object]:
    """Train ``start``, or a ticket of it, and write the model with its zeros."""
    knobs = job.read(TicketSlice)
    make_deterministic(knobs.seed)
    training = model_in_training(job, knobs)
    is_first = "before" not in job.inputs
    if not is_first:
        rewind(job, knobs, training)
    spec = TrainingSpec(
        modules=training.model,
        epoch=training.epoch,
        loss=training.loss,
        pad=training.tokenizer.pad_token_id,
        snapshots={REWOUND: knobs.rewind_to} if is_first else {},
    )
    facts = train(job, knobs if is_first else rest_of_training(knobs, training), spec, training.model.device)
    if not is_first:
        for matrix in matrices_of(training.model):
            parametrize.remove_parametrizations(matrix, "weight", leave_parametrized=True)
    return facts | saved_with_zeros(job, knobs, training, f"as {knobs.control}" if not is_first else "before any round")


def rest_of_training(knobs: TicketSlice, training: ModelInTraining) -> TicketSlice:
    """Return the knobs of a training that begins at the snapshot: its steps are those that are left then."""
    total = knobs.steps or max(1, round(len(training.epoch(0).batches) * knobs.epochs))
    return knobs.model_copy(update={"steps": max(1, total - knobs.rewind_to)})


def rewind(job: Job, knobs: TicketSlice, training: ModelInTraining) -> None:
    """Give a model the encoder's weights of the early step and the head's of the round before; mask its matrices."""
    model = training.model
    trained = load_classifier(job.inputs["before"], training.task, model.device)
    early = read_snapshot(job.inputs["dense"], REWOUND)
    model.load_state_dict(trained.state_dict() | encoder_of(model, early))
    generator = torch.Generator().manual_seed(knobs.seed)
    matrices = matrices_of(model)
    masks = ticket([matrix.weight.detach() for matrix in matrices_of(trained)], knobs.left)
    if knobs.control == "random-mask":
        masks = at_random(masks, generator)
    with torch.no_grad():
        if knobs.control == "random-weights":
            for matrix, drawn in zip(matrices, drawn_anew([one.weight for one in matrices], generator), strict=True):
                matrix.weight.copy_(drawn)
        for matrix, chosen in zip(matrices, masks, strict=True):
            mask = WeightMask(matrix.weight, None)
            mask.mask.copy_(chosen)
            parametrize.register_parametrization(matrix, "weight", mask)


def encoder_of(model: Any, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of the encoder, by their names in the whole model."""
    return {name: value for name, value in weights.items() if name.startswith(f"{model.base_model_prefix}.")}
