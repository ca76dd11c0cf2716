"""The main flow: from a pretrained teacher to small models that are evaluated, gated and registered."""

from __future__ import annotations

from prefect import flow
from pydantic import JsonValue

from flows.branches.all_stages import make_everything
from flows.deploy.recipe_form import RecipeParameter
from flows.publish.results import publish_results
from flows.run.notices import on_failure
from flows.run.opening import open_run
from flows.run.spot import heeding_notices


@flow(name="compress", flow_run_name="{recipe.name}", on_failure=[on_failure])
async def compress(recipe: RecipeParameter) -> dict[str, JsonValue]:
    """Fine-tune a teacher, distil students and drop layers, score every candidate, and register the results."""
    async with heeding_notices(), open_run(recipe) as run:
        judged, candidates, rows = await make_everything(recipe, run.sources, run.session)
        return await publish_results(recipe, run, judged, candidates, data=rows)
