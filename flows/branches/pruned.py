"""The maker of models with fewer neurons."""

from __future__ import annotations

import asyncio

from flows.branches.candidate import Candidate, SharedArtifacts, label, origin_of_seed
from tasks.contracts import Artifact
from tasks.recipe.recipe import Recipe
from tasks.recipe.shrinking import PrunedCandidate
from tasks.recipe.slices import NeuronSlice
from tasks.shrink_model import prune_neurons


async def make_pruned(recipe: Recipe, planned: PrunedCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a candidate without some neurons of the model that it is made from; each seed has a sample of its own."""
    seeds = planned.planned_seeds

    async def one(seed: int) -> Artifact:
        knobs = NeuronSlice(
            task_type=recipe.spec.kind,
            keep=planned.keep,
            importance=planned.importance,
            rows=planned.rows,
            seed=seed,
            max_length=recipe.task_distillation.prediction.max_length,
        )
        base = await origin_of_seed(planned, seed, shared)
        return await prune_neurons(knobs, base=base, rows=shared.rows, label=label(planned.name, seed, seeds))

    models = await asyncio.gather(*(one(seed) for seed in seeds))
    return Candidate(planned.name, planned.planned_role, list(models), seeds)
