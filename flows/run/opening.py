"""The opening and closing of a run: its sources, resources, budget and tracker. Everything is checked before any
computation, and closed also after an error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from flows.home import Home
from flows.run.judging_sources import known_of_sets, sources_of_sets, with_purge
from flows.run.ledger import ledger_of, new_budget
from flows.run.mlflow_run import link_to_mlflow, new_tracker, tag_flow_run
from flows.run.notices import notification_blocks, require_blocks
from flows.run.remote import (
    cancel_remote_stages,
    gpu_limit,
    is_cancelled,
    planned_place,
    processes_of_worker,
    ready_dispatcher,
    stage_hours,
)
from flows.run.stopping import (
    RUN_OPTIONS,
    RunOptions,
    cancel_subflows,
    cancel_tasks,
    is_stop,
    stopped_by_prefect,
    stopped_by_sigterm,
)
from flows.servers.watch import is_lost, login_to_own_server
from tasks.contracts import Artifact
from tasks.engine.fork_server import new_fork_server
from tasks.errors import LimbeckError, RecipeError
from tasks.ports.files.sources import resolve_corpus, resolve_data, resolve_file, resolve_model
from tasks.ports.machine import available_cores
from tasks.ports.own_metrics import metric_files, registered_metric
from tasks.ports.store.artifacts import Store
from tasks.ports.store.open import open_store
from tasks.ports.tracking.registry import Registry
from tasks.ports.tracking.tracker import Tracker
from tasks.ports.tracking.versions import require_legal_name
from tasks.recipe.candidates import tokenizes_corpus
from tasks.recipe.judging import own_metrics_of
from tasks.recipe.recipe import RANKING, Recipe
from tasks.recipe.students import named_starts
from tasks.register_model import registered_name
from tasks.results.facts import HeldBackFacts, Leaks, RowsFacts
from tasks.stage.remote import Dispatcher
from tasks.stage.session import Session, use_session

PINNED = ("torch", "transformers", "numpy", "mlflow", "prefect", "limbeck")
"""Libraries whose versions are listed in cards and results."""


SourceFinder = partial[Artifact]
"""Finds one source, whose address is its first argument; the second, if there is one, is its revision."""


@dataclass
class Run:
    """An open run."""

    session: Session
    sources: dict[str, Artifact]
    tracker: Tracker
    home: Home


@asynccontextmanager
async def open_run(recipe: Recipe, kind: str = "run") -> AsyncIterator[Run]:
    """Find the sources, check store and tracker, and yield the run for its stages; at exit, no branch is left running
    and no MLflow run open."""
    options = RUN_OPTIONS.get() or RunOptions(Home.from_environment())
    budget = new_budget(recipe.costs)
    sources = await asyncio.to_thread(find_sources, recipe, options.home)
    store = (
        options.plan.store
        if options.plan
        else await asyncio.to_thread(open_store, options.home.store, options.home.cache)
    )
    await asyncio.to_thread(store.check)
    await require_blocks(notification_blocks(recipe.notify))
    require_legal_name(registered_name(recipe, teacher_name(recipe)))
    dispatcher = await ready_dispatcher(recipe, options.home)
    processes = processes_of_worker()
    tracker = new_tracker(recipe, options.home, kind, teacher_name(recipe), sources)
    opening = asyncio.ensure_future(
        asyncio.to_thread(begin, tracker, store, registered_name(recipe, teacher_name(recipe)))
    )
    session = Session(
        store,
        *layout(recipe),
        tracker=tracker,
        watcher=options.watcher,
        force=options.force,
        plan=options.plan,
        processes=processes,
        budget=budget,
        dispatcher=dispatcher,
        gpu_limit=gpu_limit(),
        stage_hours=stage_hours(recipe.resources.stage_hours),
        engines=options.engines or new_fork_server(),
    )
    already = asyncio.all_tasks() | {opening}
    try:
        await asyncio.shield(opening)
        print_run_link(options)
        await link_to_mlflow(tracker)
        await tag_flow_run([f"task: {recipe.spec.name}", f"teacher: {teacher_name(recipe)}", f"recipe: {recipe.name}"])
        warn(options, budget.rates.warnings)
        with use_session(session), stopped_by_sigterm():
            async with stopped_by_prefect():
                yield Run(session, sources, tracker, options.home)
        await asyncio.to_thread(tracker.close, "FINISHED")
    except BaseException as error:
        # A thread cannot be cancelled: wait until it has opened the MLflow run, which can only then be ended.
        await asyncio.wait([opening])
        await stop_branches(already)
        await asyncio.shield(report_stop(session, dispatcher, error))
        await close_early(session, tracker, "KILLED" if is_stop(error) and not is_lost() else "FAILED")
        raise
    finally:
        if session.engines is not None:  # not earlier: engines write their checkpoints while the branches are stopped
            session.engines.close()


async def report_stop(session: Session, dispatcher: Dispatcher | None, error: BaseException) -> None:
    """Cancel the remote stages of a run that ended early and, if a person cancelled it, its own tasks and subflows in
    Prefect."""
    from prefect.runtime import flow_run

    await cancel_remote_stages(dispatcher, error)
    if isinstance(error, asyncio.CancelledError) and await is_cancelled():
        await cancel_tasks(session)
        with contextlib.suppress(Exception):  # the end of the run matters more than the names of its branches' states
            await cancel_subflows(UUID(str(flow_run.id)))


async def close_early(session: Session, tracker: Tracker, status: str) -> None:
    """Close the MLflow run of an unfinished run, with its stages and its ledger so far."""
    with contextlib.suppress(LimbeckError):  # the reason of the end matters more than the notes
        await asyncio.shield(asyncio.to_thread(tracker.log_stages, session.records if tracker.parent else []))
        await asyncio.shield(asyncio.to_thread(tracker.ledger, ledger_of(session) if tracker.parent else None))
    await asyncio.shield(asyncio.to_thread(tracker.close, status))


def begin(tracker: Tracker, store: Store, name: str) -> None:
    """Open the run in MLflow, and refuse at once a model that could not be promoted at the end, because the lock of
    another store guards it."""
    tracker.open()
    Registry(tracker, name, store=store.identity()).model()


def print_run_link(options: RunOptions) -> None:
    """Print the address of the run's page for the user at the command line."""
    from prefect.runtime import flow_run
    from prefect.utilities.urls import url_for

    page = url_for("flow-run", obj_id=flow_run.id) if flow_run.id else None
    if options.watcher is not None and page:
        options.watcher.note(f"watch the run at {login_to_own_server(page)}")


def warn(options: RunOptions, warnings: Sequence[str]) -> None:
    """Log warnings about outdated rates, once a run."""
    from prefect.logging import get_run_logger

    for warning in warnings:
        get_run_logger().warning(warning)
        if options.watcher is not None:
            options.watcher.note(f"warning: {warning}")


async def stop_branches(already: set[asyncio.Task[Any]]) -> None:
    """Cancel the branches that are still running and wait until their engines have stopped."""
    running = [task for task in asyncio.all_tasks() if task not in already and task is not asyncio.current_task()]
    for task in running:
        # A branch that was cancelled already is cleaning up: cancelled again, a subflow could not report its end to
        # Prefect.
        if not task.cancelling():
            task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def require_two_classes(recipe: Recipe, facts: RowsFacts, own: Mapping[str, Artifact]) -> None:
    """Reject metrics for two classes where the rows have more; ``own`` are the registered ones. Accept a plan, which
    has not counted the classes yet."""
    of_two = [f"own/{name}" for name, one in own.items() if one.facts.get("two_classes")]
    of_two += [name for name in recipe.scoring.metrics if name in RANKING]
    if of_two and facts.labels and len(facts.labels) != 2:
        raise RecipeError(
            f"scoring.metrics names {of_two[0]!r}, which is for two classes, and the rows have {len(facts.labels)}; "
            f"remove it"
        )


def metrics_in(sources: Mapping[str, Artifact]) -> dict[str, Artifact]:
    """Return the registered metrics among the sources of a run, by name."""
    return {name.removeprefix(METRIC): one for name, one in sources.items() if name.startswith(METRIC)}


METRIC = "metric:"
"""The beginning of the names of registered metrics among the sources of a run."""


KNOWN_OF_ROWS = ("leaked_by_choice", "leaked_in_part", "groups", "words_to_write")
"""Facts about held-out rows that are those of the prepared rows, where these have any."""
LEARNED = {"training rows": "prepare-rows", "transfer text": "prepare-transfer", "general text": "compare-corpus"}
"""Kinds of training data, and the stage that compared each with the held-out rows."""


def held_back(session: Session) -> HeldBackFacts:
    """Return the facts of this run's stages about held-out rows: their counts, the rows purged from train, and the
    remaining overlaps."""
    stages = {where: session.artifact_of(stage, "") for where, stage in LEARNED.items()}
    known = {where: artifact for where, artifact in stages.items() if artifact is not None and artifact.facts}
    rows, sets = known.get("training rows"), known_of_sets(session)
    if rows is None:
        return HeldBackFacts()
    leaks = {where: artifact.read(Leaks) for where, artifact in known.items()}
    data = with_purge(rows, session.artifact_of("purge-rows", ""))
    found = HeldBackFacts(
        rows=data.rows, purged=data.purged, leaked={where: one.leaked for where, one in leaks.items()}
    )
    if any(one.left_out for one in leaks.values()):
        found = found.replaced(left_out={where: one.left_out for where, one in leaks.items() if one.left_out})
    known_of_rows = {name: getattr(data, name) for name in KNOWN_OF_ROWS}
    found = found.replaced(**{name: value for name, value in known_of_rows.items() if value})
    return found.replaced(judging=sets) if sets else found


def plan_session(recipe: Recipe, home: Home) -> tuple[Session, dict[str, Artifact]]:
    """Return a session in which stages are planned but not run, and the recipe's sources."""
    store = open_store(home.store, home.cache)
    budget, placed = new_budget(recipe.costs), planned_place(recipe)
    session = Session(
        store,
        *layout(recipe),
        planning=True,
        processes=processes_of_worker(),
        budget=budget,
        dispatcher=placed.dispatcher,
        placed=placed.words,
    )
    return session, find_sources(recipe, home)


def layout(recipe: Recipe) -> tuple[int, int, int]:
    """Return the cores of a run, the threads of a stage that runs beside others, and of a stage that runs alone."""
    return recipe.resources.cores or available_cores(), recipe.resources.threads, recipe.resources.threads_alone


def find_sources(recipe: Recipe, home: Home) -> dict[str, Artifact]:
    """Find and fingerprint all external sources of a recipe: data, models, texts, and registered metrics."""
    metrics = sources_of_metrics(recipe, home)  # first, because these are found at once
    found = {name: find_source(recipe, name, finder) for name, finder in source_finders(recipe).items()}
    return found | sources_of_sets(recipe) | metrics


def find_source(recipe: Recipe, name: str, finder: SourceFinder) -> Artifact:
    """Find one source; raise its error with the knob that names the source."""
    knob = knob_of_source(recipe, name)
    try:
        return finder()
    except LimbeckError as error:
        if knob in str(error):
            raise
        raise type(error)(f"{knob}: {error}") from error


def knob_of_source(recipe: Recipe, name: str) -> str:
    """Return the knob that names a source."""
    kind, _, one = name.partition(":")
    if kind == "start":
        return f"students.{one}.start"
    if one:
        return f"ensemble.teachers.{int(one) - 2}.model"
    if kind == "data" and not recipe.data.source:
        return "task"
    return KNOBS_OF_SOURCES[kind]


KNOBS_OF_SOURCES = {
    "data": "data.source",
    "teacher": "teacher.model",
    "corpus": "corpus.source",
    "transfer": "transfer.source",
    "masked_lm": "augmentation.masked_lm",
    "word_vectors": "augmentation.word_vectors",
}
"""The knobs of the sources that a run has at most once."""


def sources_of_metrics(recipe: Recipe, home: Home) -> dict[str, Artifact]:
    """Return the registered metrics that a recipe names, with what was stated of them as facts.

    Raises RecipeError where one is not registered on this machine, was changed since, or is for other tasks.
    """
    found = {}
    for name in own_metrics_of(recipe.scoring):
        metric, folder = registered_metric(home.root, name), metric_files(home.root, name)
        if metric.task != recipe.spec.kind:
            raise RecipeError(
                f"scoring.metrics names own/{name}, which was registered for {metric.task}, and {recipe.spec.name} is "
                f"a {recipe.spec.kind}; remove it"
            )
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        found[f"{METRIC}{name}"] = Artifact("source", metric.sha256, str(folder), size, metric.model_dump())
    return found


def source_finders(recipe: Recipe) -> dict[str, SourceFinder]:
    """Return for each external source of a recipe, except judging sets, the function that finds it."""
    found: dict[str, SourceFinder] = {
        "data": partial(resolve_data, recipe.data.source, recipe.data.revision, recipe.spec)
    }
    if recipe.pretraining is None:
        found["teacher"] = partial(resolve_model, recipe.teacher.model, recipe.teacher.revision)
    divided = tokenizes_corpus(recipe.general_distillation, recipe.candidates)
    if recipe.corpus and (divided or recipe.pretraining):
        found["corpus"] = partial(resolve_corpus, recipe.corpus.source, recipe.corpus.revision)
    if recipe.transfer:
        found["transfer"] = partial(resolve_file, recipe.transfer.source)
    words = recipe.augmentation
    if words and words.masked_lm and words.masked_lm != "teacher":
        found["masked_lm"] = partial(resolve_model, words.masked_lm, words.masked_lm_revision)
    if words and words.word_vectors:
        found["word_vectors"] = partial(resolve_file, words.word_vectors)
    found |= {
        f"teacher:{number}": partial(resolve_model, colleague.model, colleague.revision)
        for number, colleague in recipe.colleagues
    }
    own = {student.name: student.start for student in recipe.new_students if student.start not in named_starts()}
    return found | {f"start:{name}": partial(resolve_model, start, None) for name, start in own.items()}


def teacher_name(recipe: Recipe) -> str:
    """Return a short name of the teacher for experiments and registered models."""
    if recipe.pretraining is not None:
        return f"{recipe.pretraining.layers}x{recipe.pretraining.hidden}"
    return Path(recipe.teacher.model).name.lower()
