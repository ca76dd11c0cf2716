"""Find the best shape within a budget: costs of shapes are predicted from measured parts, those that fit are trained in
rounds, and the best become candidates that are scored, gated and registered as those of any recipe."""

from __future__ import annotations

from prefect import flow
from pydantic import JsonValue

from flows.branches.all_stages import search_everything
from flows.branches.search.shapes import of_a_search
from flows.deploy.recipe_form import RecipeParameter
from flows.publish.results import publish_results
from flows.run.notices import on_failure
from flows.run.opening import open_run
from flows.run.spot import heeding_notices


@flow(name="search-shapes", flow_run_name="{recipe.name}", on_failure=[on_failure])
async def search_shapes(recipe: RecipeParameter) -> dict[str, JsonValue]:
    """Search the shapes of a recipe under its budget, and publish the candidates with the search behind them."""
    recipe = of_a_search(recipe)
    async with heeding_notices(), open_run(recipe, kind="search") as run:
        found = await search_everything(recipe, run.sources, run.session)
        assert found.recipe is not None and found.data is not None
        return await publish_results(
            found.recipe, run, found.judged, found.candidates, data=found.data, search=found.result
        )
