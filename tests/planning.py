"""A plan of a recipe as rows, for tests that compare what is cached."""

from __future__ import annotations

from pydantic import JsonValue

from flows.cli.runner import plan_of, planned_session
from flows.home import Home
from tasks.recipe.recipe import Recipe


def plan_recipe(recipe: Recipe, *, home: Home, kind: str = "run") -> list[dict[str, JsonValue]]:
    """Plan a run without running anything; return for each stage whether it is cached, why, and its estimated cost, in
    the form of ``limbeck plan --json``."""
    return [row.as_json() for row in plan_of(planned_session(recipe, home, kind)).stages]
