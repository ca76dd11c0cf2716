"""The end of a run: registration and promotion of its candidates, and the publication of table, JSON and pages."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from prefect.logging import get_run_logger
from prefect.utilities.annotations import quote
from pydantic import JsonValue

from flows.branches.candidate import Candidate, label
from flows.branches.export import for_the_folders, gate_word
from flows.branches.judging_sets import answers_of_sets, metrics_of_gate
from flows.publish.events import announce
from flows.publish.licences import licences_of
from flows.publish.manifest import manifest_of
from flows.publish.report import for_the_page, leave_report, make_report
from flows.publish.run_page import about_candidate, leave_pages
from flows.run.ledger import ancestors_of, costs_of_candidates, ledger_of
from flows.run.mlflow_run import knobs_of_candidates
from flows.run.notices import tell_of
from flows.run.opening import PINNED, Run, held_back, teacher_name
from tasks.contracts import Artifact
from tasks.gate.decided import RunDecision
from tasks.gate.gate_inputs import GateInputs
from tasks.gate.verdicts import Decision
from tasks.promote_models import promote_models
from tasks.recipe.recipe import Recipe
from tasks.register_model import decided, register_models
from tasks.report.format.numbers import plural
from tasks.report.page.headline import chosen, gate_tag
from tasks.results.facts import ModelFacts, RowsFacts
from tasks.results.record import Ledger
from tasks.results.row import Amount, ResultRow
from tasks.results.run import Promotion, Registered, RunDescription, RunResult, SourceFacts, StageLine
from tasks.results.search import SearchResult
from tasks.results.trials import TrialsResult
from tasks.scoring.costs.ledger import inference_joules
from tasks.stage.session import StageRecord

SHARED = {"distill-general", "pretrain-base", "pretrain-encoder"}


async def publish_results(
    recipe: Recipe,
    run: Run,
    rows: Sequence[ResultRow],
    candidates: Sequence[Candidate],
    *,
    data: Artifact,
    search: SearchResult | TrialsResult | None = None,
) -> dict[str, JsonValue]:
    """Log the figures, register the models, publish the pages, send the recipe's notices, and return the content of the
    ``--json`` file; ``search`` is what chose the candidates."""
    costs = costs_of_candidates([row.name for row in rows], run.session, ancestors_of(recipe))
    rows = [row.replaced(cost=costs[row.name].replaced(joules=energy_of_inference(recipe, row, run))) for row in rows]
    shapes = search if isinstance(search, SearchResult) else None
    registered, promotion = await register_and_promote(recipe, run, rows, candidates, data, shapes)
    registered, decisions = decided(registered, promotion), promotion["decisions"]
    verdicts = {entry.candidate: entry for entry in registered}
    efforts = efforts_of(recipe, run.session.records)
    models = [
        finished_row(row, verdicts.get(row.name)).replaced(
            **judged(decisions.get(row.name)), **efforts.get(row.name, {})
        )
        for row in rows
    ]
    ledger, manifest = ledger_of(run.session), manifest_of(recipe, run, models, split=recipe.gate.split)
    result = result_of(recipe, run, models, registered, stored_promotion(promotion), data)
    result = result.replaced(ledger=ledger, manifest=manifest, **dict(for_the_page(recipe, run)))
    if search is not None:
        result = result.replaced(**{"trials" if isinstance(search, TrialsResult) else "search": search})
    best = chosen(result)
    await asyncio.to_thread(
        run.tracker.candidates,
        models,
        best=best.name,
        standing=gate_tag(best),
        split=recipe.gate.split,
        knobs=knobs_of_candidates(recipe),
        about={model.name: about_candidate(model, result) for model in models},
    )
    await asyncio.to_thread(run.tracker.log_stages, run.session.records)
    await asyncio.to_thread(run.tracker.ledger, ledger)
    await asyncio.to_thread(run.tracker.note, "manifest", manifest.as_json())
    written = result.as_json()
    written["report"] = await leave_report(result.links or {}, partial(make_report, recipe, run, result))
    await leave_pages(result, run.tracker)
    await tell_of(recipe, result)
    announce(result)
    for line in summary(result):
        get_run_logger().info(line)
    return written


async def register_and_promote(
    recipe: Recipe,
    run: Run,
    rows: Sequence[ResultRow],
    candidates: Sequence[Candidate],
    data: Artifact,
    search: SearchResult | None = None,
) -> tuple[list[Registered], RunDecision]:
    """Register the candidates and decide on the aliases; return the registered versions and the promotion."""
    # Functions, not folders: files are fetched only for a new version.
    folders = {candidate.name: partial(run.session.store.folder, candidate.model) for candidate in candidates}
    about = describe_run(recipe, run, data)
    exports = for_the_folders(rows, candidates, run.session.store)
    with tempfile.TemporaryDirectory(prefix="limbeck-") as workspace:
        gate_inputs = new_gate_inputs(recipe, run, rows, data, Path(workspace), search)
        # Quoted: Prefect searches the arguments of a task for results of other tasks, twice, and these contain none.
        registered = await register_models(
            run.tracker, quote(folders), quote(gate_inputs), quote(about), Path(workspace), quote(exports)
        )
        promotion = await promote_models(
            quote(gate_inputs), run.tracker, run.session.store, registered, run.tracker.parent
        )
    return registered, promotion


def result_of(
    recipe: Recipe,
    run: Run,
    models: Sequence[ResultRow],
    registered: Sequence[Registered],
    promotion: Promotion,
    data: Artifact,
) -> RunResult:
    """Return the figures and decisions of a finished run, in the form of the ``--json`` file."""
    facts = data.read(RowsFacts)
    return RunResult(
        recipe=recipe.name,
        task=recipe.spec.name,
        task_type=recipe.spec.kind,
        headline=recipe.spec.headline,
        split=recipe.gate.split,
        rows=facts.rows,
        synthetic=recipe.data.synthetic,
        stages=tuple(stage_row(record) for record in run.session.records),
        models=tuple(models),
        registered=tuple(registered),
        promotion=promotion,
        links=run.tracker.urls(None),
        labels=facts.labels,
        held_back=held_back(run.session),
        **({"teacher_layers": run.session.teacher_layers} if run.session.teacher_layers else {}),
    )


def stored_promotion(decision: RunDecision) -> Promotion:
    """Return the stored part of a decision: the gate's verdicts are in the rows."""
    return Promotion.model_validate({name: value for name, value in decision.items() if name != "decisions"})


def energy_of_inference(recipe: Recipe, row: ResultRow, run: Run) -> Amount:
    """Return the energy of one inference of a candidate in joules, for the machine and the threads of its latency
    measurement."""
    pace = run.session.used_by("measure-speed", row.name)
    rates = run.session.rates
    return Amount.model_validate(
        inference_joules(row.latency_ms, recipe.speed.threads, str(pace.get("cpu", "")), rates)
    )


def summary(result: RunResult) -> list[str]:
    """Return the summary of a run for its log, in a few lines."""
    where = [f"MLflow run: {result.links['run']}"] if result.links else []
    became = [f"{entry.candidate}: {entry.why}" for entry in result.registered]
    return [f"{counts(result)}; {champion_line(result)}", *became, *spent(result.ledger), *where]


def champion_line(result: RunResult) -> str:
    """Return a phrase on the present champion, and on whether it is new."""
    champion = result.promotion.champion if result.promotion else None
    if champion is None:
        return (
            "no candidate passed the gate"
            if not any(entry.decision == "accepted" for entry in result.registered)
            else "there is no champion"
        )
    stays = "is" if result.promotion and "champion" in result.promotion.moves else "stays"
    return f"{result.registered[0].name}@champion {stays} {champion.candidate}, version {champion.version}"


def new_gate_inputs(
    recipe: Recipe,
    run: Run,
    rows: Sequence[ResultRow],
    data: Artifact,
    workspace: Path,
    search: SearchResult | None = None,
) -> GateInputs:
    """Return the inputs of the gate: the figures, access to every model's predictions and to the rows, and the overlaps
    of the gate's rows with training data."""
    store, session, split = run.session.store, run.session, recipe.gate.split
    cards = {row.name: session.artifact_of("score-model", row.name) for row in rows}
    return GateInputs(
        recipe,
        rows,
        data.read(RowsFacts),
        partial(store.folder, data),
        {name: partial(store.folder, card) for name, card in cards.items() if card is not None},
        {where: counts.get(split, 0) for where, counts in held_back(session).leaked.items()},
        workspace,
        [partial(store.folder, text) for text in [session.artifact_of("prepare-transfer", "")] if text is not None],
        answers_of_sets(recipe, session, [row.name for row in rows], store, workspace),
        search=search,
        further=metrics_of_gate(recipe, session, [row.name for row in rows]),
    )


def judged(decision: Decision | None) -> dict[str, object]:
    """Return the fields of a result row on the gate's decision; empty without a decision, as for the teacher."""
    if decision is None:
        return {}
    return {
        "verdict": decision.verdict,
        "reasons": list(decision.reasons),
        "closest": decision.closest,
        "shortfall": decision.shortfall,
    }


def counts(result: RunResult) -> str:
    """Return the number of cached stages and of new versions, in words."""
    new = sum(entry.new for entry in result.registered)
    hits = sum(stage.cache == "hit" for stage in result.stages)
    return f"{hits} of {len(result.stages)} stages cached; {plural(new, 'new model version')} registered"


def spent(ledger: Ledger | None) -> list[str]:
    """Return a line on the cost of the run and the savings by the cache; empty for an older result without a ledger."""
    from tasks.report.tables.ledger import amount

    return (
        [f"the stages of this run took {amount(ledger.total)} in total; the cache saved {amount(ledger.saved)}"]
        if ledger
        else []
    )


def describe_run(recipe: Recipe, run: Run, data: Artifact) -> RunDescription:
    """Return the provenance of a run's models for their model cards."""
    described: SourceFacts = {
        "licences": licences_of(recipe),
        "teacher_licence": recipe.teacher.licence,
        "teacher": teacher_name(recipe),
        "synthetic": recipe.data.synthetic,
        "digests": {name: artifact.sha256 for name, artifact in run.sources.items()},
        "rows": data.read(RowsFacts).rows,
        "held_back": held_back(run.session),
    }
    versions = {name: version(name) for name in PINNED}
    stages = [stage_row(record) for record in run.session.records]
    return {"teacher": teacher_name(recipe), "data": described, "versions": versions, "stages": stages}


def finished_row(row: ResultRow, verdict: Registered | None) -> ResultRow:
    """Return a row of the results with the gate's verdict added."""
    if row.export is not None:
        return row.replaced(gate=gate_word(row.export))
    gate = "—" if verdict is None else "champion" if verdict.alias == "champion" else verdict.decision
    return row.replaced(gate=gate)


def efforts_of(recipe: Recipe, records: Sequence[StageRecord]) -> dict[str, dict[str, object]]:
    """Return, for each candidate, its seeds, and for each seed the optimizer steps and training seconds of its own
    stages, cached or not.

    Stages shared by several candidates, such as general distillation, are not included.
    """
    seeds = {"teacher": (recipe.teacher.seed,), **{one.name: one.planned_seeds for one in recipe.planned}}
    return {
        name: effort_of({seed: "" if name == "teacher" else label(name, seed, own) for seed in own}, records)
        for name, own in seeds.items()
    }


def effort_of(labels: Mapping[int, str], records: Sequence[StageRecord]) -> dict[str, object]:
    """Return the seeds, and the summed steps and training seconds of the stages with each seed's label; of a candidate
    that learned from the teacher's layers, the rows whose layers were read and computed."""
    own = {
        seed: [record.artifact.read(ModelFacts) for record in records if record.artifact and trains(record, shown)]
        for seed, shown in labels.items()
    }
    learned = any(facts.teacher_rows_read is not None for stages in own.values() for facts in stages)
    return {
        "seeds": list(labels),
        "steps": [sum(facts.steps for facts in stages) for stages in own.values()],
        "train_seconds": [round(sum(facts.train_seconds or 0.0 for facts in stages), 3) for stages in own.values()],
        **(reads_of(own.values()) if learned else {}),
    }


def reads_of(seeds: Iterable[Sequence[ModelFacts]]) -> dict[str, object]:
    """Return, for each seed, the rows whose teacher's layers its stages read from the store, and computed."""
    stages = list(seeds)
    return {
        "teacher_rows_read": [sum(facts.teacher_rows_read or 0 for facts in one) for one in stages],
        "teacher_rows_computed": [sum(facts.teacher_rows_computed or 0 for facts in one) for one in stages],
    }


def trains(record: StageRecord, shown: str) -> bool:
    """Return whether a stage trained the candidate with this label; the teacher's label is empty."""
    return record.kind == "checkpoint" and record.label == shown and record.name not in SHARED


def stage_row(record: StageRecord) -> StageLine:
    """Return the entry of one stage in a result file."""
    return StageLine(
        name=record.name,
        label=record.label,
        state=record.state,
        cache=record.cache,
        seconds=round(record.seconds, 3),
        key=record.key,
    )
