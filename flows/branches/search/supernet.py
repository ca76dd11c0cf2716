"""The ranking of shapes in a supernet: all of them are scored with its weights after one training, and some are trained
alone, to tell whether trained models have that order.

Paper: Hou et al. 2020, DynaBERT, arXiv:2004.04037. Shapes are compared on the selection rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.branches.candidate import SharedArtifacts
from flows.branches.search.rounds import scores_of_round
from flows.branches.shrinking.supernets import scores_of_shapes, supernet_of
from tasks.contracts import Artifact
from tasks.recipe.makers.candidate_knobs import TEACHER
from tasks.recipe.makers.search import ShapeSearch
from tasks.recipe.makers.slices import ShapeSlice
from tasks.recipe.makers.supernets import SubNetworkCandidate
from tasks.recipe.recipe import Recipe
from tasks.results.facts import ShapeScores
from tasks.results.row import Number
from tasks.results.search import JudgedShape, SearchResult
from tasks.search.evolution import ShapeStudy, require_optuna
from tasks.search.expected_losses import score_as_served, with_loss
from tasks.search.ranking import LEAST_ORDERED, TRUSTED, kendall_tau, ordered_share
from tasks.search.space import finalists

CHECKED = 8
"""Shapes that are trained alone to check a supernet."""
LEAST_CHECKED = 8
"""Fewer shapes than these are trained in rounds: all would be trained alone for the check anyway, and of four, one
order by chance in six has a rank correlation that is trusted; of eight, one in sixty."""


async def rank_in_supernet(
    recipe: Recipe, search: ShapeSearch, result: SearchResult, shared: SharedArtifacts
) -> SearchResult | None:
    """Return the answer with the scores of all shapes in a supernet, and how far trainings of some of them agree;
    trusted if they do. None in a plan that does not know a score."""
    shapes, seed = result.shapes, search.seeds[0]
    require_optuna(len(shapes), search.evolution.above)
    planned = SubNetworkCandidate(
        name="supernet", made_from=TEACHER, by="supernet", supernet=search.whole_supernet, seeds=(seed,)
    )
    trained = await supernet_of(recipe, planned.supernet, planned, seed, await shared.teacher, shared)
    checked = evenly_spread(shapes, CHECKED)
    losses = result.losses or {}
    supernet = InSupernet(recipe, search, trained, shared, losses, result.scored_by)
    scores = await scores_inside(supernet, shapes, checked)
    alone = await scores_of_round(recipe, search, checked, 1, len(result.rounds) - 1, shared)
    if scores is None or None in alone:
        return None
    inside = [float(scores[one.name] or 0) for one in checked]
    outside = [float(score or 0) for score in alone]
    tau, ordered = kendall_tau(inside, outside), ordered_share(inside, outside)
    scored = [one.replaced(scores=(scores[one.name],)) for one in shapes if one.name in scores]
    rest = [one for one in shapes if one.name not in scores]
    return result.replaced(
        shapes=(*with_states(scored, search.candidates, losses, result.scored_by), *rest),
        rounds=(min(search.candidates, len(shapes)),),
        scored=len(scored) if rest else None,
        supernet_tau=tau,
        supernet_ordered=ordered,
        checked=tuple(one.name for one in checked),
        trusted=tau is not None and tau >= TRUSTED and ordered >= LEAST_ORDERED,
    )


@dataclass(frozen=True)
class InSupernet:
    """A trained supernet, whose weights score shapes."""

    recipe: Recipe
    search: ShapeSearch
    trained: Artifact
    shared: SharedArtifacts
    losses: Mapping[str, Number]
    """Expected losses by vocabulary and format."""
    metric: str

    async def scores(self, shapes: Sequence[JudgedShape]) -> dict[str, float | None] | None:
        """Return the scores of shapes by name, less the expected loss of their vocabularies, since a supernet has all
        pieces; None in a plan that does not know them."""
        wanted = [ShapeSlice(layers=one.layers, width=float(one.width), neurons=float(one.neurons)) for one in shapes]
        length = self.search.supernet.prediction.max_length
        judged = await scores_of_shapes(self.recipe, self.trained, wanted, length, self.shared)
        if not judged.facts:
            return None
        return {
            one.name: with_loss(score, self.losses.get(one.pieces, 0.0), self.metric)
            for one, score in zip(shapes, judged.read(ShapeScores).scores, strict=True)
        }

    def as_served(self, shape: JudgedShape, score: float | None) -> float:
        """Return a score less the expected loss of the shape's format, too."""
        return score_as_served(shape.replaced(scores=(score,)), self.losses, self.metric)


async def scores_inside(
    supernet: InSupernet, shapes: Sequence[JudgedShape], checked: Sequence[JudgedShape]
) -> dict[str, float | None] | None:
    """Return the scores of all shapes; of those that are ``checked`` and of generations of others where there are many.
    Each generation is a stage of its own, so that a search that was stopped goes on behind the last one. None in a plan
    that does not know a score."""
    evolution = supernet.search.evolution
    if len(shapes) <= evolution.above:
        return await supernet.scores(shapes)
    by_name = {one.name: one for one in shapes}
    study, every = ShapeStudy(shapes, evolution, supernet.search.seed), await supernet.scores(checked)
    for _ in range(evolution.generations):
        if every is None:
            return None
        wanted = [one for one in study.next_generation() if one.name not in every]
        found = await supernet.scores(wanted) if wanted else {}
        if found is None:
            return None
        every |= found
        study.tell({name: supernet.as_served(by_name[name], score) for name, score in every.items()})
    return every


def with_states(
    scored: Sequence[JudgedShape], count: int, losses: Mapping[str, Number], metric: str
) -> list[JudgedShape]:
    """Return shapes, the best first: the candidates, and those that are much like a better one."""
    ranked = sorted(scored, key=lambda one: (-score_as_served(one, losses, metric), one.bytes))
    kept, passed = finalists(ranked, count, cheapest_of_a_score=True)
    rest = [one for one in ranked if one not in kept and one not in passed]
    alike = [one.replaced(state="too much alike") for one in passed]
    return [*(one.replaced(state="candidate") for one in kept), *alike, *rest]


def evenly_spread(shapes: Sequence[JudgedShape], count: int) -> list[JudgedShape]:
    """Return shapes at even distances from the largest to the smallest by FLOPs; all if there are no more."""
    ordered = sorted(shapes, key=lambda one: (-float(one.flops), one.name))
    if len(ordered) <= count:
        return ordered
    return [ordered[round(number * (len(ordered) - 1) / (count - 1))] for number in range(count)]
