"""The answer of a search, over shapes or over ways to train one: candidates that were trained briefly, and how far
their order is that of whole trainings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from flows.branches.candidate import Candidate, SharedArtifacts
from flows.branches.makers import all_candidates
from tasks.contracts import Artifact
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.recipe import Recipe
from tasks.recipe.training import TaskTraining
from tasks.results.row import ResultRow
from tasks.results.search import JudgedShape, SearchResult
from tasks.results.trials import TrialsResult, TriedRecipe
from tasks.search.ranking import TRUSTED, kendall_tau

Ranked = TypeVar("Ranked", JudgedShape, TriedRecipe)


@dataclass
class FoundCandidates:
    """The answer of a search so far, and the recipe with the candidates; none in a plan that cannot know."""

    result: SearchResult | TrialsResult
    recipe: Recipe | None = None


@dataclass
class Searched(FoundCandidates):
    """A whole search; a plan has no recipe and no rows where it cannot know what is chosen."""

    judged: list[ResultRow] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    data: Artifact | None = None


def compared_by(recipe: Recipe, training: TaskTraining) -> str:
    """Return the metric on the selection rows by which trainings of one kind are compared."""
    return recipe.spec.headline if training.choose_by == "headline" else training.choose_by


async def trained_briefly(
    recipe: Recipe, candidates: Sequence[CandidateKnobs], shared: SharedArtifacts
) -> dict[str, Candidate]:
    """Train candidates beside those of the recipe, to compare them, and return them by name."""
    briefly = recipe.model_copy(update={"candidates": tuple(candidates), "students": (), "layer_dropping": None})
    made = await all_candidates(briefly, replace(shared, planned={}, made={}))
    return {one.name: one for one in made}


def with_whole_scores(
    result: SearchResult | TrialsResult, candidates: Sequence[Candidate]
) -> SearchResult | TrialsResult:
    """Return the answer with the scores of whole trainings on the selection rows, and how far the last round, or the
    supernet, agrees with them. A plan that does not know them returns the answer as it is."""
    before, made = "the last round", {one.name: one for one in candidates}
    if isinstance(result, TrialsResult):
        ways = tuple(with_whole_score(one, made) for one in result.trials)
        tau, notes = agreement_with_whole(ways, before)
        return result if scores_missing(ways) else result.replaced(trials=ways, tau=tau, notes=(*result.notes, *notes))
    shapes = tuple(with_whole_score(one, made) for one in result.shapes)
    tau, notes = agreement_with_whole(shapes, "the supernet" if result.trusted else before)
    return result if scores_missing(shapes) else result.replaced(shapes=shapes, tau=tau, notes=(*result.notes, *notes))


def with_whole_score(tried: Ranked, made: dict[str, Candidate]) -> Ranked:
    """Return a candidate with the score of its whole training; one that was left out as it is."""
    if tried.state != "candidate" or tried.name not in made:
        return tried
    candidate = made[tried.name]
    return tried.replaced(scores=(*tried.scores, candidate.selection_scores[candidate.chosen]))


def scores_missing(tried: Sequence[JudgedShape | TriedRecipe]) -> bool:
    """Tell whether the score of a candidate is not known, as in a plan."""
    return any(one.state == "candidate" and None in one.scores for one in tried)


def agreement_with_whole(tried: Sequence[JudgedShape | TriedRecipe], before: str) -> tuple[float | None, list[str]]:
    """Return Kendall's tau of the last two scores of the candidates, and a note where it is low; ``before`` is what
    scored them before their whole trainings, in words."""
    pairs = [one.scores[-2:] for one in tried if one.state == "candidate" and len(one.scores) > 1]
    tau = kendall_tau([float(pair[0] or 0) for pair in pairs], [float(pair[1] or 0) for pair in pairs])
    if tau is None or tau >= TRUSTED:
        return tau, []
    return tau, [f"{before} and whole trainings rank the candidates differently (tau {tau:.2f})"]
