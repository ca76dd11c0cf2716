"""A candidate of a run, with one checkpoint for each seed, and the artifacts that the branches of a run share."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from statistics import stdev
from typing import Any, NamedTuple, TypeVar

from attrs import evolve

from tasks.contracts import Artifact
from tasks.finetune_teacher import set_generation_config, tune_thresholds
from tasks.recipe.makers.candidate_knobs import PRETRAINED, CandidateKnobs
from tasks.recipe.makers.slices import SupernetSlice
from tasks.recipe.makers.writing import TextAnswerSlice
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import AnswerSlice, ContributionSlice, MixSlice, SignalSlice, ThresholdSlice
from tasks.results.facts import ModelFacts

Shared = TypeVar("Shared")


@dataclass
class SharedArtifacts:
    """Artifacts that branches share; a branch awaits only those that it uses."""

    rows: Artifact
    base: Artifact
    teacher: Awaitable[Artifact]
    colleagues: Sequence[Awaitable[Artifact]] = ()
    corpus: Awaitable[Artifact] | None = None
    source: Artifact | None = None
    """The corpus as the user has it."""
    pretraining: Awaitable[dict[str, Artifact]] | None = None
    """The vocabulary and the sentences of the corpus on which models are pretrained."""
    substitutes: Awaitable[Artifact] | None = None
    """The words with which augmentation replaces others."""
    transfer: Artifact | None = None
    starts: dict[str, Artifact] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    """Groups of rows by split, of splits whose rows come in groups."""
    layers: int = 0
    """Layers of the teacher."""
    planned: dict[str, CandidateKnobs] = field(default_factory=dict)
    """The knobs of all candidates of the recipe by name."""
    made: dict[str, Awaitable[Candidate]] = field(default_factory=dict)
    """The candidates of the recipe by name, for those that are made from them."""
    earlier: dict[str, EarlierCandidate] = field(default_factory=dict)
    """The newest candidate of each name, also of rounds of a search, which cut shapes alike."""
    judging: dict[str, Artifact] = field(default_factory=dict)
    """The rows of judging sets, by name."""
    metrics: dict[str, Artifact] = field(default_factory=dict)
    """The registered metrics that the recipe names, by name."""
    general: dict[Any, Awaitable[Artifact]] = field(default_factory=dict)
    signals: dict[SignalSlice, Awaitable[Artifact | None]] = field(default_factory=dict)
    """The teacher's stored layers by knobs; None where it runs beside each training."""
    free: int | None = None
    """Free bytes of the disk before layers were stored; None until they are needed."""
    claimed: int = 0
    """Bytes of the layers that this run stores."""
    answers: dict[tuple[AnswerSlice, int], Awaitable[Artifact]] = field(default_factory=dict)
    """The teachers' predictions, by knobs and by the number of the teacher, counted from 0."""
    texts: dict[TextAnswerSlice, Awaitable[Artifact]] = field(default_factory=dict)
    """The texts that the teacher writes, by knobs."""
    supernets: dict[tuple[SupernetSlice, str], Awaitable[Artifact]] = field(default_factory=dict)
    """Trained supernets, by knobs and by the model that they are made from."""
    mixtures: dict[tuple[AnswerSlice, MixSlice], Awaitable[Artifact]] = field(default_factory=dict)
    contributions: dict[tuple[ContributionSlice, str], Awaitable[Artifact]] = field(default_factory=dict)
    """By knobs, and by the model: finetuned, pretrained, or a candidate and its seed."""
    context: Context = field(default_factory=copy_context)
    """The context of the run itself."""

    def begin(self, work: Awaitable[Shared]) -> asyncio.Task[Shared]:
        """Start stages that several branches use, as those of the run itself: begun inside of a branch, they would be
        drawn on the page of the branch that needed them first, and be stopped with it."""

        async def made() -> Shared:
            return await work

        return asyncio.get_running_loop().create_task(made(), context=self.context.copy())


class EarlierCandidate(NamedTuple):
    """A candidate that was made or is under way, with its knobs, and with the candidate that it is made from."""

    knobs: CandidateKnobs
    made: asyncio.Future[Candidate]
    origin: Awaitable[Candidate] | None


async def candidate_of_seeds(planned: CandidateKnobs, make: Callable[[int], Awaitable[Artifact]]) -> Candidate:
    """Make the checkpoints of all seeds of a planned candidate, side by side, and return the candidate."""
    seeds = planned.planned_seeds
    models = await asyncio.gather(*(make(seed) for seed in seeds))
    return Candidate(planned.name, planned.planned_role, list(models), seeds)


async def origin_of_seed(planned: CandidateKnobs, seed: int, shared: SharedArtifacts) -> Artifact:
    """Return the checkpoint that one seed of a candidate is made from; of another candidate, that of the same seed."""
    if planned.is_follower:
        return (await shared.made[planned.made_from]).of_seed(seed)
    return shared.base if planned.made_from == PRETRAINED else await shared.teacher


@dataclass(frozen=True)
class Candidate:
    """One small model to be judged: its name, its role, and one checkpoint for each seed, in the order of the recipe.

    The checkpoint of one seed is chosen: it is exported, registered, and judged by its own figures. The others show the
    spread over seeds.
    """

    name: str
    role: str
    models: list[Artifact]
    seeds: tuple[int, ...] = (0,)

    @property
    def chosen(self) -> int:
        """The number of the chosen seed: the one with the best score on the selection rows; the first among equals, or
        if a score is missing."""
        scores = self.selection_scores
        return 0 if None in scores else best_of(scores)

    @property
    def selection_scores(self) -> list[float | None]:
        """The score of every seed on the selection rows; None if it was not measured, or is not known yet."""
        return [model.read(ModelFacts).selection_score for model in self.models]

    @property
    def model(self) -> Artifact:
        """The checkpoint of the chosen seed. In a plan that cannot know it, a checkpoint that is not computed yet, so
        that stages that depend on it are not reported as cached."""
        waiting = [model for model in self.models if not model.facts] if len(self.models) > 1 else []
        return waiting[0] if waiting else self.models[self.chosen]

    def of_seed(self, seed: int) -> Artifact:
        """The checkpoint of one seed: what a follower of this seed is made from."""
        return self.models[self.seeds.index(seed)]

    @property
    def chosen_first(self) -> list[Artifact]:
        """All checkpoints, that of the chosen seed first: the order of scorecards."""
        return [self.models[self.chosen], *(model for number, model in enumerate(self.models) if number != self.chosen)]

    def as_in_recipe(self, values: Sequence[float | None]) -> list[float | None]:
        """Return values that are in the order of ``chosen_first`` in the order of the recipe's seeds."""
        others = [*values[1:]]
        return [*others[: self.chosen], values[0], *others[self.chosen :]] if values else []


async def finished_model(recipe: Recipe, model: Artifact, rows: Artifact, shown: str) -> Artifact:
    """Return a model as it is scored, exported and registered: with tuned thresholds, or with the settings by which it
    writes, if its task type has some. Students learn from the model as it was trained."""
    if recipe.task_type.writes:
        settled = await set_generation_config(recipe.generation, base=model, label=shown)
    elif recipe.task_type.has_thresholds:
        knobs = ThresholdSlice(
            task_type=recipe.spec.kind, metric=recipe.spec.headline, max_length=recipe.scoring.max_length
        )
        settled = await tune_thresholds(knobs, base=model, rows=rows, label=shown)
    else:
        return model
    return evolve(settled, facts={**model.facts, **settled.facts}) if settled.facts else settled


async def finished_candidate(recipe: Recipe, candidate: Candidate, rows: Artifact) -> Candidate:
    """Return a candidate with finished checkpoints, those of all seeds side by side."""
    shown = [label(candidate.name, seed, candidate.seeds) for seed in candidate.seeds]
    models = await asyncio.gather(
        *(finished_model(recipe, model, rows, name) for model, name in zip(candidate.models, shown, strict=True))
    )
    return replace(candidate, models=list(models))


def score_or_lowest(score: float | None) -> float:
    """Return a score; minus infinity for an unknown one, so that it ranks last."""
    return -math.inf if score is None else score


def best_of(scores: Sequence[float | None]) -> int:
    """Return the index of the best score; the first among equals."""
    return max(range(len(scores)), key=lambda number: (score_or_lowest(scores[number]), -number))


def label(name: str, seed: int, seeds: tuple[int, ...]) -> str:
    """Return a short static name for the run graph."""
    return name if len(seeds) == 1 else f"{name} s{seed}"


def deviation(per_seed: Sequence[float | None]) -> float | None:
    """Return the sample standard deviation over seeds (n - 1 in the denominator); None for a single seed, and where a
    score is undefined."""
    scores = [score for score in per_seed if score is not None]
    return stdev(scores) if 1 < len(scores) == len(per_seed) else None
