"""The end of a sweep: a row for every strategy and number of layers, the answer, and their publication as table, plot,
JSON and artifacts."""

from __future__ import annotations

import asyncio
import base64

from prefect.logging import get_run_logger

from flows.branches.candidate import Candidate, deviation
from flows.branches.sweep import Swept, selection_score
from flows.publish.manifest import manifest_of
from flows.publish.report import for_the_page, leave_report
from flows.publish.results import spent, stage_row
from flows.run.ledger import costs_of_candidates, ledger_of
from flows.run.opening import Run, held_back
from tasks.ports.tracking.run_files import keep_report
from tasks.recipe.recipe import Recipe
from tasks.report.page.page import sweep_page
from tasks.results.facts import ModelFacts, ScoreFacts, SimilarityFacts
from tasks.results.sweep import LayerSimilarity, SweepCell, SweepResult, read_sweep


async def publish_sweep(recipe: Recipe, run: Run, swept: Swept) -> SweepResult:
    """Log the figures, publish table and plot in the Prefect UI and in MLflow, and return the content of the ``--json``
    file; nothing is registered."""
    from tasks.report.page.picture import sweep_picture
    from tasks.report.tables.sweep import answer_lines, sweep_markdown

    found, ledger = sweep_result(recipe, swept), ledger_of(run.session)
    costs = costs_of_candidates([f"{cell['strategy']}-{cell['drop']}" for cell in found["cells"]], run.session)
    for cell in found["cells"]:
        cell["cost"] = costs[f"{cell['strategy']}-{cell['drop']}"].as_json()
    result = read_sweep(
        {
            **found,
            "stages": [stage_row(record).as_json() for record in run.session.records],
            "links": run.tracker.urls(None),
            "ledger": ledger.as_json(),
            "held_back": held_back(run.session).as_json(),
            **for_the_page(recipe, run).as_json(),
        }
    )
    plot, text = await asyncio.to_thread(sweep_picture, result), sweep_markdown(result)
    await asyncio.to_thread(run.tracker.sweep, result, plot, text)
    await asyncio.to_thread(run.tracker.log_stages, run.session.records)
    await asyncio.to_thread(run.tracker.ledger, ledger)
    result["manifest"] = manifest = manifest_of(recipe, run, kind="sweep").as_json()
    await asyncio.to_thread(run.tracker.note, "manifest", manifest)
    result["report"] = await leave_report(result["links"], lambda: keep_report(run.tracker, sweep_page(result)))
    await leave_artifacts(result, plot, text)
    for line in [*answer_lines(result), *spent(ledger)]:
        get_run_logger().info(line)
    return result


def sweep_result(recipe: Recipe, swept: Swept) -> SweepResult:
    """Return every figure of a sweep and its answer."""
    from tasks.scoring.quality.layers_needed import chosen_by_drop, layers_needed

    grid, split, headline = swept.grid, recipe.gate.split, recipe.spec.headline
    cells = [cell_row(swept, strategy, drop, split) for drop in grid.drops for strategy in grid.strategies]
    chosen = {(cell["drop"], cell["strategy"]) for cell in chosen_by_drop(cells).values()}
    teacher = swept.scorecard.read(ScoreFacts)
    return {
        "recipe": recipe.name,
        "task": recipe.spec.name,
        "headline": headline,
        "split": split,
        "rows": teacher.rows[split],
        "confidence": recipe.scoring.confidence,
        "layers": grid.layers,
        "strategies": list(grid.strategies),
        "drop": list(grid.drops),
        "seeds": list(grid.dropping.seeds),
        "halving": grid.halving,
        "after_finetuning": grid.dropping.after_finetuning,
        "teacher": {
            "score": teacher.metrics[split][headline].as_bounds(),
            "parameters": teacher.parameters,
            "bytes": teacher.bytes,
            "flops": teacher.flops,
        },
        "cells": [{**cell, "chosen": (cell["drop"], cell["strategy"]) in chosen} for cell in cells],
        "answer": layers_needed(cells),
        "similarity": similarity_rows(swept.similarity.read(SimilarityFacts)),
    }


def cell_row(swept: Swept, strategy: str, drop: int, split: str) -> SweepCell:
    """Return the figures of one strategy at one number of layers: scored, dropped out after the first rung, or
    undefined."""
    tried = swept.tried.get((strategy, drop))
    about = SweepCell(strategy=strategy, drop=drop, layers=swept.grid.layers - drop, state="undefined")
    if tried is None:
        return about
    if tried.candidate is None or tried.card is None:
        return {**about, "state": "dropped out", "rung_score": tried.rung}
    return {**scored_cell(about, swept, tried.candidate, tried.card.read(ScoreFacts), split), "rung_score": tried.rung}


def scored_cell(about: SweepCell, swept: Swept, candidate: Candidate, card: ScoreFacts, split: str) -> SweepCell:
    """Return a cell with the scores of its candidate."""
    per_seed, means = candidate.as_in_recipe(card.per_seed[split][card.headline]), card.means[split]
    made = [model.read(ModelFacts) for model in candidate.models]
    return {
        **about,
        "state": "scored",
        "kept": list(made[0].kept_layers),
        "seeds": list(swept.grid.dropping.seeds),
        "score": means.metrics[card.headline].as_bounds(),
        "per_seed": per_seed,
        "deviation": deviation(per_seed),
        "difference": means.difference.as_bounds() if means.difference else None,
        "selection_score": selection_score(candidate),
        "parameters": card.parameters,
        "bytes": card.bytes,
        "flops": card.flops,
        "train_seconds": [facts.train_seconds for facts in made],
        "checkpoints": [model.sha256 for model in candidate.models],
    }


def similarity_rows(facts: SimilarityFacts) -> list[LayerSimilarity]:
    """Return one row for the embeddings and for each layer, counted from 0 as in ``kept``."""
    names = ["embeddings", *range(len(facts.cka) - 1)]
    return [
        {"layer": name, "cka": cka, "cosine": cosine}
        for name, cka, cosine in zip(names, facts.cka, facts.cosines, strict=True)
    ]


async def leave_artifacts(result: SweepResult, plot: str, text: str) -> None:
    """Publish the answer, the table and the plot on the Prefect run page."""
    from prefect.artifacts import acreate_image_artifact, acreate_markdown_artifact

    link = result["links"].get("run")
    note = f"[MLflow run]({link})" if link else "MLflow: start `limbeck ui` for links."
    await acreate_markdown_artifact(
        f"{text}\n{note}\n", key="sweep", description="Number of layers that the task needs"
    )
    image = f"data:image/svg+xml;base64,{base64.b64encode(plot.encode()).decode()}"
    await acreate_image_artifact(image, key="sweep-plot", description="Score by dropped layers")
