"""The makers of models with a smaller vocabulary, with fewer neurons or heads, or of a smaller width. They train
nothing but the model between two rounds of iterative pruning."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from flows.branches.candidate import Candidate, SharedArtifacts, candidate_of_seeds, label, origin_of_seed
from flows.branches.student import train_student
from tasks.contracts import Artifact
from tasks.recipe.chains import depth_of
from tasks.recipe.makers.candidate_knobs import TEACHER
from tasks.recipe.makers.shrinking import HeadsCandidate, NarrowedCandidate, PrunedCandidate, TrimmedCandidate
from tasks.recipe.makers.slices import HeadSlice, NeuronSlice, PruneRoundSlice, VocabularySlice, WidthSlice
from tasks.recipe.recipe import Recipe
from tasks.recipe.students import Student
from tasks.shrink_model import prune_heads, prune_in_rounds, prune_neurons, prune_width, trim_vocabulary


async def make_trimmed(recipe: Recipe, planned: TrimmedCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a candidate with fewer pieces than the model that it is made from."""
    knobs = VocabularySlice(
        task_type=recipe.spec.kind,
        keep=planned.keep,
        floor=planned.floor,
        train="train" in planned.of,
        max_length=planned.max_length or recipe.task_distillation.prediction.max_length,
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

    async def at_once(seed: int, base: Artifact, named: str) -> Artifact:
        knobs = NeuronSlice(**measure_of(recipe, planned, seed))
        return await prune_neurons(knobs, base=base, rows=shared.rows, label=named)

    return await pruned_by_importance(recipe, planned, "neurons", shared, at_once)


async def make_narrowed(recipe: Recipe, planned: NarrowedCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a candidate without some dimensions and heads of the model that it is made from; each seed has a sample of
    its own."""

    async def at_once(seed: int, base: Artifact, named: str) -> Artifact:
        knobs = WidthSlice(**measure_of(recipe, planned, seed))
        return await prune_width(knobs, base=base, rows=shared.rows, label=named)

    return await pruned_by_importance(recipe, planned, "heads", shared, at_once)


async def make_with_fewer_heads(recipe: Recipe, planned: HeadsCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a candidate with fewer heads than the model that it is made from; each seed has a sample of its own."""

    async def one(seed: int) -> Artifact:
        base = await origin_of_seed(planned, seed, shared)
        knobs = HeadSlice(**measure_of(recipe, planned, seed), scope=planned.scope)
        named = label(planned.name, seed, planned.planned_seeds)
        return await prune_heads(knobs, base=base, rows=shared.rows, label=named)

    return await candidate_of_seeds(planned, one)


async def pruned_by_importance(
    recipe: Recipe,
    planned: PrunedCandidate | NarrowedCandidate,
    part: Literal["neurons", "heads"],
    shared: SharedArtifacts,
    at_once: Callable[[int, Artifact, str], Awaitable[Artifact]],
) -> Candidate:
    """Return a candidate of all seeds, pruned in rounds where it has several, and else by ``at_once``."""

    async def one(seed: int) -> Artifact:
        base = await origin_of_seed(planned, seed, shared)
        if planned.rounds > 1:
            return await in_rounds(recipe, planned, part, seed, base, shared)
        return await at_once(seed, base, label(planned.name, seed, planned.planned_seeds))

    return await candidate_of_seeds(planned, one)


def measure_of(
    recipe: Recipe, planned: PrunedCandidate | NarrowedCandidate | HeadsCandidate, seed: int
) -> dict[str, Any]:
    """Return the knobs of a measurement of importance."""
    return {
        "task_type": recipe.spec.kind,
        "keep": planned.keep,
        "importance": planned.importance,
        "rows": planned.rows,
        "seed": seed,
        "max_length": planned.max_length or recipe.task_distillation.prediction.max_length,
    }


async def in_rounds(
    recipe: Recipe,
    planned: PrunedCandidate | NarrowedCandidate,
    part: Literal["neurons", "heads"],
    seed: int,
    first: Artifact,
    shared: SharedArtifacts,
) -> Artifact:
    """Prune one seed in rounds, and train between two rounds on the teacher's predictions; each round, and each
    training, is a stage, so that a stopped run goes on with the next one."""
    made = first
    for number in range(1, planned.rounds + 1):
        shown = planned.name if number == planned.rounds else f"{planned.name}-round-{number}"
        knobs = PruneRoundSlice(**measure_of(recipe, planned, seed), part=part, round=number, rounds=planned.rounds)
        named = label(shown, seed, planned.planned_seeds)
        made = await prune_in_rounds(knobs, base=made, first=first, rows=shared.rows, label=named)
        if number < planned.rounds:
            made = await train_student(recipe, between_rounds(planned, shown, shared), seed, shared, made)
    return made


def between_rounds(planned: PrunedCandidate | NarrowedCandidate, shown: str, shared: SharedArtifacts) -> Student:
    """Return the student that is trained between two rounds: the model as the round before left it."""
    return Student(
        name=shown,
        layers=depth_of(planned, shared.planned, shared.layers),
        start=TEACHER,
        stages=(),
        prediction=planned.planned_between,
        seeds=planned.planned_seeds,
    )
