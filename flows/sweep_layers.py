"""Find how many layers a task needs: every strategy drops every number of layers from one teacher, with several seeds.
The answer has an interval.

``compress.py`` runs a whole recipe; this flow answers one question about its teacher. Each strategy is a subflow, so
that the graph stays readable, and every training is a cached stage: a sweep that was killed, or repeated with another
strategy, trains only the missing models. Nothing is registered: copy the layers of the answer into a recipe's
``layer_dropping`` and run it.
"""

from __future__ import annotations

from prefect import flow

from flows.branches.all_stages import sweep_everything
from flows.branches.sweep import of_a_sweep
from flows.deploy.recipe_form import RecipeParameter
from flows.publish.sweep_results import publish_sweep
from flows.run.notices import on_failure
from flows.run.opening import open_run
from flows.run.spot import heeding_notices
from tasks.results.sweep import SweepResult


@flow(name="sweep-layers", flow_run_name="{recipe.name}", on_failure=[on_failure])
async def sweep_layers(recipe: RecipeParameter) -> SweepResult:
    """Drop layers of one teacher by every strategy, number and seed, score all models, and report how many layers the
    task needs."""
    recipe = of_a_sweep(recipe)
    async with heeding_notices(), open_run(recipe, kind="sweep") as run:
        return await publish_sweep(recipe, run, await sweep_everything(recipe, run.sources, run.session))
