"""Iterative pruning: one round of several, between which the model is trained, so that it never loses much at once.

Sources: Molchanov et al. 2016, arXiv:1611.06440 (prune a part, train, prune again); Muralidharan et al. 2024
(Minitron), arXiv:2407.14679. Round r of R leaves the share keep^(r/R) of the first model, so every round removes the
same share of what it finds, and the last one leaves exactly what a single round would.
"""

from __future__ import annotations

from typing import Any

from tasks.architectures.known_architectures import shape_of
from tasks.engine.job import Job
from tasks.errors import RecipeError
from tasks.methods.pruning.importance import most_important
from tasks.methods.pruning.neurons import feed_forward_maps, keep_neurons, neurons_to_keep
from tasks.methods.pruning.widths import heads_to_keep, width_and_heads_of
from tasks.recipe.makers.slices import PruneRoundSlice
from tasks.training.data.rows import Task, task_and_tokenizer
from tasks.training.models.students import load_classifier, save_model
from tasks.training.precision import device, make_deterministic
from tasks.training.selection import score_of_finished
from tasks.training.shrinking.neuron_pruning import importance_of
from tasks.training.shrinking.width_pruning import with_fewer_heads


def prune_round(job: Job) -> dict[str, object]:
    """Write ``base`` as one round leaves it; ``first`` is the model before the first round."""
    knobs = job.read(PruneRoundSlice)
    make_deterministic(knobs.seed)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "base")
    model = load_classifier(job.inputs["base"], task, device()).eval()
    count, before = numbers_of_round(job, knobs, model)
    if count >= before:
        raise RecipeError(
            f"round {knobs.round} of {knobs.rounds} to keep: {knobs.keep} would remove none of {before:,} {knobs.part} "
            f"in each layer, because numbers are rounded; set fewer rounds, or a smaller share"
        )
    smaller = PARTS[knobs.part](job, knobs, task, model, tokenizer, count)
    save_model(smaller, tokenizer, job.output)
    written = load_classifier(job.output, task, device()).eval()
    return {
        knobs.part: count,
        f"{knobs.part}_before": before,
        "selection_score": score_of_finished(job, knobs, task, written, tokenizer),
        "note": f"{count:,} of {before:,} {knobs.part} in each layer, in round {knobs.round} of {knobs.rounds}, by "
        f"{knobs.importance}",
    }


def numbers_of_round(job: Job, knobs: PruneRoundSlice, model: Any) -> tuple[int, int]:
    """Return how many neurons or heads of each layer a round leaves, and how many it finds."""
    from transformers import AutoConfig

    first = shape_of(AutoConfig.from_pretrained(job.inputs["first"], local_files_only=True))
    share = knobs.keep ** (knobs.round / knobs.rounds)
    if knobs.part == "neurons":
        return neurons_to_keep(int(first["feed_forward"] or 0), share), feed_forward_maps(model)[0][0].out_features
    return heads_to_keep(int(first["heads"] or 0), share), width_and_heads_of(model.config)[1]


def with_fewer_neurons(job: Job, knobs: PruneRoundSlice, task: Task, model: Any, tokenizer: Any, count: int) -> Any:
    """Return the model with ``count`` neurons in each layer."""
    importance_LF = importance_of(job, knobs, task, model, tokenizer)
    keep_neurons(model, [most_important(importance_F, count) for importance_F in importance_LF])
    return model


PARTS = {"neurons": with_fewer_neurons, "heads": with_fewer_heads}
"""What a round removes, by name: neurons, or heads with the width that goes with them."""
