"""The makers that train nothing: models with a smaller vocabulary, with fewer neurons, or of a smaller width."""

from __future__ import annotations

from flows.branches.candidate import Candidate, SharedArtifacts, candidate_of_seeds, label, origin_of_seed
from tasks.contracts import Artifact
from tasks.recipe.makers.shrinking import NarrowedCandidate, PrunedCandidate, TrimmedCandidate
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import NeuronSlice, VocabularySlice, WidthSlice
from tasks.shrink_model import prune_neurons, prune_width, trim_vocabulary


async def make_trimmed(recipe: Recipe, planned: TrimmedCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a candidate with fewer pieces than the model that it is made from."""
    knobs = VocabularySlice(
        task_type=recipe.spec.kind,
        keep=planned.keep,
        floor=planned.floor,
        train="train" in planned.of,
        max_length=recipe.task_distillation.prediction.max_length,
    )
    texts = await counted_texts(planned, shared)

    async def one(seed: int) -> Artifact:
        base = await origin_of_seed(planned, seed, shared)
        return await trim_vocabulary(
            knobs, base=base, rows=shared.rows, **texts, label=label(planned.name, seed, planned.planned_seeds)
        )

    return await candidate_of_seeds(planned, one)


async def counted_texts(planned: TrimmedCandidate, shared: SharedArtifacts) -> dict[str, Artifact]:
    """Return the texts beside the rows in which pieces are counted: those that the candidate names and the recipe
    has. The corpus comes with the model whose tokenizer divided it."""
    found: dict[str, Artifact] = {}
    if "transfer" in planned.of and shared.transfer is not None:
        found["transfer"] = shared.transfer
    if "corpus" in planned.of and shared.corpus is not None:
        found |= {"corpus": await shared.corpus, "pretrained": shared.base}
    return found


async def make_pruned(recipe: Recipe, planned: PrunedCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a candidate without some neurons of the model that it is made from; each seed has a sample of its own."""

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
        return await prune_neurons(
            knobs, base=base, rows=shared.rows, label=label(planned.name, seed, planned.planned_seeds)
        )

    return await candidate_of_seeds(planned, one)


async def make_narrowed(recipe: Recipe, planned: NarrowedCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a candidate without some dimensions and heads of the model that it is made from; each seed has a sample of
    its own."""

    async def one(seed: int) -> Artifact:
        knobs = WidthSlice(
            task_type=recipe.spec.kind,
            keep=planned.keep,
            importance=planned.importance,
            rows=planned.rows,
            seed=seed,
            max_length=recipe.task_distillation.prediction.max_length,
        )
        base = await origin_of_seed(planned, seed, shared)
        return await prune_width(
            knobs, base=base, rows=shared.rows, label=label(planned.name, seed, planned.planned_seeds)
        )

    return await candidate_of_seeds(planned, one)
