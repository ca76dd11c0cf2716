"""A search over recipes: ways to train one shape are tried for a part of the steps, and the better third goes on, until
the minutes are spent; the best are candidates, trained, scored and judged as those of any recipe.

Paper: successive halving, Jamieson and Talwalkar 2015, arXiv:1502.07943. Ways are compared on the selection rows alone.
Seconds are those of the trainings, as their stages state them, so that a search that is run again decides alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from flows.branches.candidate import Candidate, SharedArtifacts
from flows.branches.search.found import FoundCandidates, compared_by, trained_briefly
from flows.branches.search.rounds import ROUND
from tasks.errors import RecipeError
from tasks.preflight import check_students
from tasks.recipe.chains import require_chains
from tasks.recipe.makers.search import ShapeSearch
from tasks.recipe.makers.trials import RecipeTrials, Trial
from tasks.recipe.recipe import Recipe
from tasks.results.facts import ModelFacts
from tasks.results.trials import TrialsResult, TriedRecipe
from tasks.search.trials import (
    PhaseSeconds,
    candidate_of_trial,
    fits_first_round,
    in_order_of_trial,
    next_round,
    seconds_beyond,
    steps_of_rounds,
    tried_recipe,
)
from tasks.stage.session import Session


def trials_of(recipe: Recipe) -> RecipeTrials | None:
    """Return the ways to train one shape that a search tries; None for a search over shapes."""
    return None if recipe.search is None else recipe.search.recipes


def require_trials(recipe: Recipe, search: ShapeSearch) -> Recipe:
    """Return a recipe whose trials can be made; raise RecipeError for one with a budget of shapes, without selection
    rows, and for trials that the recipe could not hold as candidates."""
    assert search.recipes is not None
    if search.budget.bounds():
        raise RecipeError(
            "search has a budget, which is for shapes, and recipes, which are tried by the minute; remove "
            "search.recipes to search shapes, or search.budget to try recipes"
        )
    if not recipe.data.selection_rows:
        raise RecipeError(
            "ways to train are compared on selection rows, and data.selection_rows is 0; set data.selection_rows: 1000"
        )
    try:
        with_trials(recipe, search.recipes, search.recipes.all_trials)
    except ValidationError as error:
        said = "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())
        raise RecipeError(f"search.recipes: {said}") from error
    except ValueError as error:
        raise RecipeError(f"search.recipes: {error}") from error
    return recipe


def with_trials(recipe: Recipe, trials: RecipeTrials, chosen: Sequence[Trial]) -> Recipe:
    """Return the recipe with ways to train as further candidates; raise ValueError where it could not hold them."""
    section = recipe.task_distillation
    made = [candidate_of_trial(one, trials, section, trials.steps, trials.seeds) for one in chosen]
    found = recipe.model_copy(update={"candidates": (*recipe.candidates, *made)})
    require_chains(found.planned, recipe.pretraining)
    return Recipe.model_validate(found.model_dump(exclude_unset=True, by_alias=True))


async def find_recipes(recipe: Recipe, shared: SharedArtifacts, session: Session) -> FoundCandidates:
    """Try ways to train the shape in rounds, and return a recipe with the best as candidates."""
    trials = trials_of(recipe)
    assert trials is not None
    if trials.shape.layers > shared.layers:
        raise RecipeError(
            f"search.recipes.shape has {trials.shape.layers} layers, and the teacher has {shared.layers}; give it at "
            f"most as many"
        )
    if not session.is_guess(shared.base):
        every_way = with_trials(recipe, trials, trials.all_trials)
        await asyncio.to_thread(check_students, every_way, session.store.folder(shared.base), {})
    steps, order = steps_of_rounds(trials), in_order_of_trial(trials)
    ways = {one.name: one for one in order}
    every = {one.name: tried_recipe(one) for one in order}
    result = TrialsResult(
        scored_by=compared_by(recipe, recipe.task_distillation.prediction),
        minutes=trials.minutes,
        steps=tuple(steps),
        trials=tuple(every.values()),
    )
    begun = await ways_of_first_round(Round(recipe, trials, 1, steps[0], shared, session), order)
    if begun is None:
        return FoundCandidates(result)
    going, paid = begun, dict[str, float]()
    for number in range(1, trials.rounds):
        trying = Round(recipe, trials, number, steps[number - 1], shared, session)
        found = await trying.tried([ways[name] for name in going])
        if found is None:
            return FoundCandidates(result)
        for name, one in zip(going, found, strict=True):
            before = every[name]
            every[name] = before.replaced(
                scores=(*before.scores, one.score), seconds=float(before.seconds) + one.seconds, state="left out"
            )
        took = {name: one.stages for name, one in zip(going, found, strict=True)}
        paid |= {key: value for stages in took.values() for key, value in stages.items()}
        ranked = sorted((every[name] for name in going), key=lambda one: -float(one.scores[-1] or 0.0))
        last = seconds_beyond([took[one.name] for one in ranked])
        count = next_round(ranked, trials, sum(paid.values()), last, is_last=number == trials.rounds - 1)
        going = [one.name for one in ranked[:count]]
    chosen = {name: every[name].replaced(state="candidate") for name in going}
    rest = sorted((one for name, one in every.items() if name not in chosen), key=by_rounds)
    result = result.replaced(trials=(*chosen.values(), *rest), spent=round(sum(paid.values()) / 60, 4))
    return FoundCandidates(result, with_trials(recipe, trials, [ways[name] for name in chosen]))


async def ways_of_first_round(first: Round, order: Sequence[Trial]) -> list[str] | None:
    """Return the ways that the first round tries, by name: one of each cost is trained alone before the others, since
    methods that compare inner layers take several times as long as the others. None in a plan that does not know it."""
    going: list[Trial] = []
    seconds: dict[tuple[str, bool], PhaseSeconds] = {}
    for way in order:
        if not fits_first_round(way, going, seconds, first.trials):
            break
        if way.cost not in seconds:
            found = await first.tried([way])
            if found is None:
                return None
            seconds[way.cost] = found[0].phases
        going.append(way)
    return [one.name for one in going]


def by_rounds(one: TriedRecipe) -> tuple[int, float]:
    """Return the place of a way among those that were left out: those of later rounds first, then the better ones."""
    return -len(one.scores), -float(one.scores[-1] or 0.0) if one.scores else 0.0


@dataclass(frozen=True)
class ScoredTrial:
    """One way in one round."""

    score: float | None
    stages: Mapping[str, float]
    """The seconds of its trainings, by key; ways that differ in the learning rate alone share the first phase."""
    last: str
    """The key of its last phase."""

    @property
    def seconds(self) -> float:
        """The seconds of all its trainings."""
        return float(sum(self.stages.values()))

    @property
    def phases(self) -> PhaseSeconds:
        """The seconds of its phase on inner layers, and of the last one."""
        return PhaseSeconds(self.seconds - self.stages[self.last], self.stages[self.last])


@dataclass(frozen=True)
class Round:
    """A round of trials."""

    recipe: Recipe
    trials: RecipeTrials
    number: int
    steps: int
    shared: SharedArtifacts
    session: Session

    async def tried(self, ways: Sequence[Trial]) -> list[ScoredTrial] | None:
        """Train the shape in some ways, with the first seed; None in a plan that does not know a score."""
        section, suffix, seeds = self.recipe.task_distillation, ROUND.format(self.number), self.trials.seeds[:1]
        candidates = [candidate_of_trial(one, self.trials, section, self.steps, seeds, suffix) for one in ways]
        made = await trained_briefly(self.recipe, candidates, self.shared)
        if not all(one.models[0].facts for one in made.values()):
            return None
        return [self.scored(name, one) for name, one in made.items()]

    def scored(self, name: str, candidate: Candidate) -> ScoredTrial:
        """Return the score and the seconds of a candidate, also where its stages were cached."""
        trained = {
            one.key: one.artifact for one in self.session.records if one.label == name and one.artifact is not None
        }
        seconds = {key: artifact.read(ModelFacts).train_seconds or 0.0 for key, artifact in trained.items()}
        last = next((key for key, one in trained.items() if one.sha256 == candidate.models[0].sha256), [*trained][-1])
        return ScoredTrial(candidate.selection_scores[0], seconds, last)
