"""The flows ``compress`` and ``sweep-layers`` with forms: a recipe of the shelf by its name, and changes to its knobs.
People schedule these flows or start them with a click."""

from __future__ import annotations

from typing import Any

from prefect import flow
from pydantic import JsonValue

from flows.compress import compress
from flows.home import Home
from flows.run.demo import DEMO, with_language
from flows.run.forms import Changes, LeftOut, ShelfName, recipe_of_the_shelf
from flows.run.notices import on_failure
from flows.sweep_layers import sweep_layers
from tasks.recipe.recipe import Recipe
from tasks.recipe.students import Sweep
from tasks.results.sweep import SweepResult


@flow(name="compress-from-shelf", flow_run_name="{recipe}", on_failure=[on_failure])
async def compress_from_shelf(
    recipe: ShelfName,
    changes: Changes = Changes(),  # noqa: B008 - it is frozen
    without: LeftOut = (),
) -> dict[str, JsonValue]:
    """Make small models from a recipe of the shelf: fine-tune a teacher, distil students, drop layers, score every
    candidate, and register the results.

    Args:
        recipe: A recipe of the shelf; each is described in deployments/recipes/README.md, and in its file.
        changes: Changes to the recipe, knob by knob; empty fields keep the recipe's value. Lists (students, criteria)
            replace those of the recipe.
        without: Sections of the recipe to leave out.
    """
    # Call the flow's function: as a subflow it would appear as a second run of the same name.
    return await compress.fn(ready_recipe(recipe, changes, without))


@flow(name="sweep-from-shelf", flow_run_name="{recipe}", on_failure=[on_failure])
async def sweep_from_shelf(
    recipe: ShelfName,
    sweep: Sweep = Sweep(),  # noqa: B008 - it is frozen
    changes: Changes = Changes(),  # noqa: B008 - it is frozen
    without: LeftOut = (),
) -> SweepResult:
    """Find how many layers a task needs: drop layers of the recipe's teacher by every strategy, number and seed. The
    answer has an interval.

    Args:
        recipe: A recipe of the shelf; the sweep uses its task, its data, its teacher and its training of dropped
            models.
        sweep: Strategies, numbers and seeds to try; empty fields are as in the recipe, or all values.
        changes: Changes to the recipe, knob by knob.
        without: Sections of the recipe to leave out.
    """
    return await sweep_layers.fn(ready_recipe(recipe, changes, without, sweep))


def ready_recipe(name: str, changes: Any, without: tuple[str, ...], sweep: Sweep | None = None) -> Recipe:
    """Return the recipe of a filled form; the demo recipe gets its generated text, so that the first click on a new
    server produces a model."""
    recipe = recipe_of_the_shelf(name, changes, without, sweep)
    return with_language(recipe, Home.from_environment()) if name == DEMO else recipe
