"""The rounds of a search: shapes are trained for a part of their steps, and the better third goes on.

Paper: successive halving, Jamieson and Talwalkar 2015, arXiv:1502.07943. Shapes are compared on the selection rows
alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from flows.branches.candidate import SharedArtifacts
from flows.branches.search.found import trained_briefly
from tasks.recipe.makers.search import ShapeSearch
from tasks.recipe.recipe import Recipe
from tasks.results.facts import ModelFacts
from tasks.results.search import JudgedShape, SearchResult
from tasks.search.chains import chain_of_shape, each_once, part_of_training
from tasks.search.expected_losses import score_as_served
from tasks.search.space import finalists

ROUND = ".r{}"
"""The end of the name of a training in a round."""


async def train_in_rounds(
    recipe: Recipe, search: ShapeSearch, result: SearchResult, sizes: Sequence[int], shared: SharedArtifacts
) -> list[JudgedShape] | None:
    """Train the shapes of an answer for a part of their steps, round by round; return all of them with their scores and
    their state, the best first. None in a plan that does not know a score."""
    shapes, losses, metric = result.shapes, result.losses or {}, result.scored_by
    going, out = list(shapes[: search.shapes]), list(shapes[search.shapes :])
    for number in range(1, len(sizes)):
        scores = await scores_of_round(recipe, search, going, number, len(sizes) - number, shared)
        if None in scores:
            return None
        scored = [
            one.replaced(scores=(*one.scores, score), state="left out")
            for one, score in zip(going, scores, strict=True)
        ]
        ranked = sorted(scored, key=lambda one: (-score_as_served(one, losses, metric), one.bytes))
        # in every round: shapes much like a better one would take the places of those that differ
        kept, passed = finalists(ranked, sizes[number], cheapest_of_a_score=number == len(sizes) - 1)
        ranked = [one.replaced(state="too much alike") if one in passed else one for one in ranked]
        names = {one.name for one in kept}
        going = list(kept)
        out = [*(one for one in ranked if one.name not in names), *out]
    if len(sizes) == 1:
        going = going[: sizes[0]]
        out = [*shapes[sizes[0] :]]
    return [*(one.replaced(state="candidate") for one in going), *out]


async def scores_of_round(
    recipe: Recipe,
    search: ShapeSearch,
    shapes: Sequence[JudgedShape],
    number: int,
    left: int,
    shared: SharedArtifacts,
) -> list[float | None]:
    """Train shapes in one round, with the first seed, and return their scores on the selection rows."""
    suffix, training = ROUND.format(number), part_of_training(search.training, left)
    chains = [chain_of_shape(one, search, training, shared.layers, search.seeds[:1], suffix) for one in shapes]
    made = await trained_briefly(recipe, each_once(chains), shared)
    last = [made[chain[-1].name].models[0] for chain in chains]
    return [None if not one.facts else float(one.read(ModelFacts).score) for one in last]
