"""What a search refuses before it measures anything: metrics and budgets that could not be compared, and shapes that
could not be made."""

from __future__ import annotations

from flows.branches.search.found import compared_by
from tasks.contracts import Artifact
from tasks.errors import RecipeError
from tasks.recipe.candidates import DistilledCandidate, require_one_choice
from tasks.recipe.makers.candidate_knobs import TEACHER
from tasks.recipe.makers.search import ShapeSearch
from tasks.recipe.recipe import Recipe
from tasks.recipe.students import Shape
from tasks.search.chains import as_prediction
from tasks.search.space import depths_of


def require_comparable(recipe: Recipe, search: ShapeSearch) -> None:
    """Raise RecipeError where two metrics would be compared, or a budget that holds for no graph."""
    headline, by = recipe.spec.headline, compared_by(recipe, recipe.teacher)
    if by != headline and set(search.space.vocabulary) != {"whole"}:
        raise RecipeError(
            f"teacher.choose_by is {by}, and the teacher with fewer pieces is scored by {headline}: what a vocabulary "
            f"costs would be a difference of two metrics; leave teacher.choose_by out, or set search.space.vocabulary: "
            f"[whole]"
        )
    shares = [bound for bound in search.require_budget() if bound.name == "memory" and bound.of_teacher]
    if shares and search.space.formats != ("torch",):
        raise RecipeError(
            f"search.budget: {shares[0]} cannot be checked on graphs, because no graph of the teacher is measured; "
            f"give an amount, such as memory=200MB, or a share of its bytes"
        )
    shape = DistilledCandidate(
        name="search.training",
        made_from=TEACHER,
        by="distillation",
        shape=Shape(layers=1),
        stages=(),
        prediction=as_prediction(search.training),
    )
    try:
        require_one_choice((*recipe.planned, shape), recipe.task_distillation.prediction, headline)
    except ValueError as error:
        raise RecipeError(str(error)) from error


def require_own_layers(search: ShapeSearch, base: Artifact) -> None:
    """Raise RecipeError for a supernet of a teacher whose layers share their weights, before anything is measured."""
    if search.ranking == "supernet" and base.facts.get("architecture") == "albert":
        raise RecipeError(
            "search.ranking: supernet drops layers one by one, and the layers of this teacher, an albert, share their "
            "weights; choose ranking: halving"
        )


def require_droppable(search: ShapeSearch, layers: int) -> None:
    """Raise RecipeError for a number of layers that the strategy cannot leave, before anything is measured."""
    from tasks.methods.layers.layer_strategies import undefined

    depths = depths_of(search, layers)
    legal = [one for one in depths if one == layers or not undefined(search.strategy, layers, layers - one)]
    if len(legal) < len(depths):
        least = next(one for one in depths if one not in legal)
        raise RecipeError(
            f"search.strategy: {search.strategy} cannot leave {least} of {layers} layers; set search.space.layers: "
            f"{legal or [layers]}, or another strategy"
        )
