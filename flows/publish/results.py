"""The end of a run: who passed the gate, what was registered, and the table, the JSON and the pages that say so."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefect.logging import get_run_logger
from prefect.utilities.annotations import quote

from flows.branches.candidate import Candidate, label
from flows.branches.export import for_the_folders, gate_word
from flows.branches.judging_sets import answers_of_sets
from flows.publish.events import announce
from flows.publish.licences import licences_of
from flows.publish.manifest import manifest_of
from flows.publish.report import for_the_page, leave_report
from flows.publish.run_page import leave_pages
from flows.run.ledger import costs_of_candidates, ledger_of
from flows.run.notices import tell_of
from flows.run.opening import PINNED, Run, held_back, teacher_name
from tasks.contracts import Artifact
from tasks.gate.judging import Judging
from tasks.gate.verdicts import Decision
from tasks.promote_models import promote_models
from tasks.recipe.recipe import Recipe
from tasks.register_model import decided, register_models
from tasks.report.page.headline import chosen, gate_tag
from tasks.results.row import Amount, Cost, ResultRow
from tasks.results.run import Promotion, Registered, RunResult, StageLine
from tasks.scoring.costs.ledger import inference_joules
from tasks.stage.session import StageRecord

SHARED = {"distill-general", "pretrain-base"}


async def publish_results(
    recipe: Recipe, run: Run, rows: Sequence[ResultRow], candidates: Sequence[Candidate], *, data: Artifact
) -> dict[str, Any]:
    """Log the figures, register the models, leave its pages, tell whom the recipe names, and return what ``--json``
    writes."""
    costs = costs_of_candidates([row.name for row in rows], run.session)
    rows = [row.replaced(cost=with_energy(costs[row.name], energy_of_inference(recipe, row, run))) for row in rows]
    registered, promotion = await register_and_promote(recipe, run, rows, candidates, data)
    registered, decisions = decided(registered, promotion), promotion.pop("decisions")
    verdicts = {entry.candidate: entry for entry in registered}
    efforts = efforts_of(recipe, run.session.records)
    models = [
        finished_row(row, verdicts.get(row.name)).replaced(
            **judged(decisions.get(row.name)), **efforts.get(row.name, {})
        )
        for row in rows
    ]
    ledger, manifest = ledger_of(run.session), manifest_of(recipe, run, models, split=recipe.gate.split)
    result = result_of(recipe, run, models, registered, Promotion.model_validate(promotion), data)
    result = result.replaced(ledger=ledger, manifest=manifest, **for_the_page(recipe, run))
    best = chosen(result)
    await asyncio.to_thread(
        run.tracker.candidates, models, best=best.name, standing=gate_tag(best), split=recipe.gate.split
    )
    await asyncio.to_thread(run.tracker.log_stages, run.session.records)
    await asyncio.to_thread(run.tracker.ledger, ledger)
    await asyncio.to_thread(run.tracker.note, "manifest", manifest)
    written = result.as_json()
    written["report"] = await leave_report(recipe, run, written)
    await leave_pages(result, run.tracker)
    await tell_of(recipe, written)
    announce(result)
    for line in summary(result):
        get_run_logger().info(line)
    return written


async def register_and_promote(
    recipe: Recipe, run: Run, rows: Sequence[ResultRow], candidates: Sequence[Candidate], data: Artifact
) -> tuple[list[Registered], dict[str, Any]]:
    """Register every candidate that the gate takes, and decide on the aliases; return both, for the results."""
    # What is registered already is not fetched: only a new version asks for its files.
    folders = {candidate.name: partial(run.session.store.folder, candidate.model) for candidate in candidates}
    about = describe_run(recipe, run, data)
    exports = for_the_folders(rows, candidates, run.session.store)
    with tempfile.TemporaryDirectory(prefix="limbeck-") as workspace:
        judging = new_judging(recipe, run, rows, data, Path(workspace))
        # Quoted: Prefect looks for other tasks' results in whatever a task is given, twice, and in these there are
        # none.
        registered = await register_models(
            run.tracker, quote(folders), quote(judging), quote(about), Path(workspace), quote(exports)
        )
        promotion = await promote_models(quote(judging), run.tracker, run.session.store, registered, run.tracker.parent)
    return registered, promotion


def result_of(
    recipe: Recipe,
    run: Run,
    models: Sequence[ResultRow],
    registered: Sequence[Registered],
    promotion: Promotion,
    data: Artifact,
) -> RunResult:
    """Return the figures and decisions of a run that is over, as ``--json`` writes them."""
    return RunResult(
        recipe=recipe.name,
        task=recipe.spec.name,
        headline=recipe.spec.headline,
        split=recipe.gate.split,
        rows=data.facts["rows"],
        synthetic=recipe.data.synthetic,
        stages=tuple(stage_row(record) for record in run.session.records),
        models=tuple(models),
        registered=tuple(registered),
        promotion=promotion,
        links=run.tracker.urls(None),
        labels=data.facts.get("labels"),
        held_back=held_back(run.session),
    )


def with_energy(cost: Mapping[str, Any], joules: Amount) -> Cost:
    """Return the cost of a candidate with the energy of one inference."""
    return Cost.model_validate({**cost, "joules": joules})


def energy_of_inference(recipe: Recipe, row: ResultRow, run: Run) -> Amount:
    """Return what one inference of a candidate draws, where and as its latency was measured."""
    pace = run.session.used_by("measure-speed", row.name)
    rates = run.session.rates
    return Amount.model_validate(
        inference_joules(row.latency_ms, recipe.speed.threads, str(pace.get("cpu", "")), rates)
    )


def summary(result: RunResult) -> list[str]:
    """Say in a few lines of the run's log what came out."""
    where = [f"MLflow run: {result.links['run']}"] if result.links else []
    became = [f"{entry.candidate}: {entry.why}" for entry in result.registered]
    return [f"{counts(result)}; {champion_line(result)}", *became, *spent(result.ledger), *where]


def champion_line(result: RunResult) -> str:
    """Say who is champion now, and whether it was before."""
    champion = result.promotion.champion if result.promotion else None
    if champion is None:
        return (
            "no candidate passed the gate"
            if not any(entry.decision == "accepted" for entry in result.registered)
            else "nobody is champion"
        )
    stays = "is" if result.promotion and "champion" in result.promotion.moves else "stays"
    return f"{result.registered[0].name}@champion {stays} {champion.candidate}, version {champion.version}"


def new_judging(recipe: Recipe, run: Run, rows: Sequence[ResultRow], data: Artifact, workspace: Path) -> Judging:
    """Return what the gate needs: the figures, where every model's answers are, and where the rows that judge stand
    besides."""
    store, session, split = run.session.store, run.session, recipe.gate.split
    cards = {row.name: session.artifact_of("score-model", row.name) for row in rows}
    return Judging(
        recipe,
        rows,
        data.facts,
        partial(store.folder, data),
        {name: partial(store.folder, card) for name, card in cards.items() if card is not None},
        {where: counts.get(split, 0) for where, counts in held_back(session)["leaked"].items()},
        workspace,
        [partial(store.folder, text) for text in [session.artifact_of("prepare-transfer", "")] if text is not None],
        answers_of_sets(session, [row.name for row in rows], store, workspace),
    )


def judged(decision: Decision | None) -> dict[str, object]:
    """Return what a row of the results says of the gate's decision; the teacher has none."""
    if decision is None:
        return {}
    return {
        "verdict": decision.verdict,
        "reasons": list(decision.reasons),
        "closest": decision.closest,
        "shortfall": decision.shortfall,
    }


def counts(result: RunResult) -> str:
    """Say how many stages were cached and how many versions are new."""
    new = sum(entry.new for entry in result.registered)
    hits = sum(stage.cache == "hit" for stage in result.stages)
    return f"{hits} of {len(result.stages)} stages cached; {new} new model versions registered"


def spent(ledger: Mapping[str, Any] | None) -> list[str]:
    """Say what the run took and what the cache saved it; an older result says nothing of it."""
    from tasks.report.tables.ledger import amount

    return (
        [f"this run's stages, added up, took {amount(ledger['total'])}; the cache saved {amount(ledger['saved'])}"]
        if ledger
        else []
    )


def describe_run(recipe: Recipe, run: Run, data: Artifact) -> dict[str, Any]:
    """Return what model cards say of where a model comes from."""
    sources = {name: artifact.sha256 for name, artifact in run.sources.items()}
    described = {
        "licences": licences_of(recipe),
        "teacher_licence": recipe.teacher.licence,
        "teacher": teacher_name(recipe),
        "synthetic": recipe.data.synthetic,
        "digests": sources,
        **dict(data.facts),
        "held_back": held_back(run.session),
    }
    versions = {name: version(name) for name in PINNED}
    stages = [stage_row(record) for record in run.session.records]
    return {"teacher": teacher_name(recipe), "data": described, "versions": versions, "stages": stages}


def finished_row(row: ResultRow, verdict: Registered | None) -> ResultRow:
    """Add the gate's word to a row of the results."""
    if row.export is not None:
        return row.replaced(gate=gate_word(row.export))
    gate = "—" if verdict is None else "champion" if verdict.alias == "champion" else verdict.decision
    return row.replaced(gate=gate)


def efforts_of(recipe: Recipe, records: Sequence[StageRecord]) -> dict[str, dict[str, object]]:
    """Return by candidate its seeds, and by seed the optimizer steps and training seconds of its own stages, cached or
    not.

    What several share, such as general distillation, is not in it.
    """
    dropping = recipe.layer_dropping
    dropped = (
        {f"{strategy}-{drop}": dropping.seeds for strategy in dropping.strategies for drop in dropping.drop}
        if dropping
        else {}
    )
    seeds = {
        "teacher": (recipe.teacher.seed,),
        **dropped,
        **{student.name: student.seeds for student in recipe.students},
    }
    return {
        name: effort_of({seed: "" if name == "teacher" else label(name, seed, own) for seed in own}, records)
        for name, own in seeds.items()
    }


def effort_of(labels: Mapping[int, str], records: Sequence[StageRecord]) -> dict[str, object]:
    """Add up what the stages of each seed's label took."""
    own = {
        seed: [record.artifact.facts for record in records if record.artifact and trains(record, shown)]
        for seed, shown in labels.items()
    }
    return {
        "seeds": list(labels),
        "steps": [sum(facts.get("steps", 0) for facts in stages) for stages in own.values()],
        "train_seconds": [
            round(sum(facts.get("train_seconds", 0.0) for facts in stages), 3) for stages in own.values()
        ],
    }


def trains(record: StageRecord, shown: str) -> bool:
    """Tell whether a stage trained the candidate of this label; the teacher's has none."""
    return record.kind == "checkpoint" and record.label == shown and record.name not in SHARED


def stage_row(record: StageRecord) -> StageLine:
    """Return the line of a result file about one stage."""
    return StageLine(
        name=record.name,
        label=record.label,
        state=record.state,
        cache=record.cache,
        seconds=round(record.seconds, 3),
        key=record.key,
    )
