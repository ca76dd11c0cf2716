"""A flow that takes one teacher, for workers that lose their instance while they make it."""

from __future__ import annotations

from prefect import flow

from flows.run import spot
from flows.run.opening import open_run
from tasks.finetune_teacher import finetune_teacher
from tasks.prepare_rows import prepare_rows
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice, TeacherSlice


@flow
async def teacher_alone(recipe: Recipe) -> str:
    """Make the recipe's rows and its teacher; return the teacher's digest."""
    spot.NOTICE_POLL_SECONDS = 0.5  # AWS advises five seconds, in which a tiny teacher has learned everything
    async with spot.heeding_notices(), open_run(recipe) as run:
        rows = await prepare_rows(RowsSlice(**dict(recipe.data), task=recipe.spec), source=run.sources["data"])
        knobs = TeacherSlice(**dict(recipe.teacher), task_type=recipe.spec.kind)
        return (await finetune_teacher(knobs, rows=rows, base=run.sources["teacher"])).sha256
