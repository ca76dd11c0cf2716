"""The same stories, told to a form: a recipe of the shelf by its name, and what to change of it. What people schedule,
and start with a click."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.compress import compress
from flows.home import Home
from flows.run.demo import DEMO, with_language
from flows.run.forms import Changes, LeftOut, ShelfName, recipe_of_the_shelf
from flows.run.notices import on_failure
from flows.sweep_layers import sweep_layers
from tasks.recipe.recipe import Recipe
from tasks.recipe.students import Sweep


@flow(name="compress-from-shelf", flow_run_name="{recipe}", on_failure=[on_failure])
async def compress_from_shelf(recipe: ShelfName, changes: Changes = Changes(), without: LeftOut = ()) -> dict[str, Any]:  # noqa: B008 - it is frozen
    """Make small models by a recipe of the shelf: fine-tune a teacher, distil students, drop layers, score every
    candidate, register what came out.

    Args:
        recipe: A recipe of the shelf; each is described in deployments/recipes/README.md, and in its file.
        changes: What to change of it, knob by knob; what is left empty is as the recipe says. Lists (students,
            criteria) are given whole.
        without: Sections of the recipe to leave out.
    """
    # The flow's own function: as a subflow it would be a second run of the same name, with nothing beside it.
    result: dict[str, Any] = await compress.fn(ready_recipe(recipe, changes, without))
    return result


@flow(name="sweep-from-shelf", flow_run_name="{recipe}", on_failure=[on_failure])
async def sweep_from_shelf(
    recipe: ShelfName,
    sweep: Sweep = Sweep(),  # noqa: B008 - it is frozen
    changes: Changes = Changes(),  # noqa: B008 - it is frozen
    without: LeftOut = (),
) -> dict[str, Any]:
    """How many layers does a task need? Drop layers of the recipe's teacher by every strategy, number and seed; the
    answer has an interval.

    Args:
        recipe: A recipe of the shelf; of it the task, the data and the teacher count, and how dropped models are
            trained.
        sweep: What is tried; what is left empty is as the recipe says, or everything.
        changes: What to change of the recipe, knob by knob.
        without: Sections of the recipe to leave out.
    """
    result: dict[str, Any] = await sweep_layers.fn(ready_recipe(recipe, changes, without, sweep))
    return result


def ready_recipe(name: str, changes: Any, without: tuple[str, ...], sweep: Sweep | None = None) -> Recipe:
    """Return what a form asked for; the demo gets its language, so that a first click on a new server ends with a
    model."""
    recipe = recipe_of_the_shelf(name, changes, without, sweep)
    return with_language(recipe, Home.from_environment()) if name == DEMO else recipe
