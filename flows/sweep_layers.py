"""Find how many layers a task needs: every strategy drops every number of layers from one teacher, with several seeds.
The answer has an interval.

``compress.py`` runs a whole recipe; this flow answers one question about its teacher. Each strategy is a subflow, so
that the graph stays readable, and every training is a cached stage: a sweep that was killed, or repeated with another
strategy, trains only the missing models. Nothing is registered: copy the layers of the answer into a recipe's
``layer_dropping`` and run it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from prefect import flow

from flows.branches.candidate import SharedArtifacts
from flows.branches.judging_sets import rows_to_learn
from flows.branches.sweep import Search, Swept, first_rung, grid_of, of_a_sweep, try_strategy
from flows.branches.teacher import good_teacher, pretrained_base
from flows.branches.teacher_signals import answers_for
from flows.publish.sweep_results import publish_sweep
from flows.run.notices import on_failure
from flows.run.opening import open_run
from flows.run.spot import heeding_notices
from tasks.contracts import Artifact
from tasks.drop_layers import measure_similarity
from tasks.preflight import require_selection
from tasks.prepare_rows import prepare_rows
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ContributionSlice, RowsSlice, ScoreSlice
from tasks.results.facts import RowsFacts
from tasks.score_model import score_model
from tasks.stage.session import Session


@flow(name="sweep-layers", flow_run_name="{recipe.name}", on_failure=[on_failure])
async def sweep_layers(recipe: Recipe) -> dict[str, Any]:
    """Drop layers of one teacher by every strategy, number and seed, score all models, and report how many layers the
    task needs."""
    recipe = of_a_sweep(recipe)
    async with heeding_notices(), open_run(recipe, kind="sweep") as run:
        return await publish_sweep(recipe, run, await sweep_everything(recipe, run.sources, run.session))


async def sweep_everything(recipe: Recipe, sources: dict[str, Artifact], session: Session) -> Swept:
    """Run every stage of the sweep; return the tried models with their scores."""
    grid = await asyncio.to_thread(grid_of, recipe, sources, session)
    rows = await prepare_rows(RowsSlice(**dict(recipe.data), task=recipe.spec), source=sources["data"])
    require_selection(rows.read(RowsFacts))
    rows, _ = await rows_to_learn(recipe, sources, rows)
    base = await pretrained_base(recipe, sources)
    teacher = asyncio.ensure_future(good_teacher(recipe, rows, base))
    shared = SharedArtifacts(rows=rows, base=base, teacher=teacher)
    trained = await shared.teacher  # a teacher no better than guessing ends the sweep here, before any layer is dropped
    if grid.dropping.signal == "teacher":
        await answers_for(recipe, shared, grid.dropping)
    scoring = ScoreSlice(**dict(recipe.scoring), task=recipe.spec)
    looked_at = ContributionSlice(
        task_type=recipe.spec.kind, token=grid.dropping.token, max_length=grid.dropping.max_length
    )
    card, similarity = await asyncio.gather(
        score_model(scoring, models=[trained], teacher=trained, rows=rows, label="teacher"),
        measure_similarity(looked_at, base=base, teacher=trained, rows=rows),
    )
    search, swept = Search(), Swept(grid, card, similarity)
    going = (
        await first_rung(recipe, swept, shared, search, session)
        if grid.halving
        else {name: grid.drops_of(name) for name in grid.strategies}
    )
    branches = [
        try_strategy(recipe, swept, name, drops, shared, search, session, scoring)
        for name, drops in going.items()
        if drops
    ]
    await asyncio.gather(*branches)
    return swept
