"""Runs started by the command line: a run of a recipe, its plan, and the demo."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from flows.home import Home
from flows.publish.results_folder import write_json
from flows.run.ledger import planned_cost
from flows.run.stopping import RUN_OPTIONS, RunOptions, confirm, forget_cancellation
from flows.servers import watch as server_watch
from tasks.engine.environment import environment
from tasks.engine.fork_server import ForkServer, new_fork_server
from tasks.errors import BudgetError, RecipeError
from tasks.recipe.recipe import Recipe
from tasks.results.record import PlannedRun, StagePlan
from tasks.results.row import Cost
from tasks.results.run import RunResult
from tasks.results.search import SearchResult
from tasks.results.trials import TrialsResult
from tasks.scoring.costs.ledger import sum_of
from tasks.stage.session import Session, StageRecord


def run_recipe(
    recipe: Recipe,
    *,
    home: Home,
    watcher: Any = None,
    force: frozenset[str] = frozenset(),
    json_path: Path | None = None,
    plan: Session | None = None,
    engines: ForkServer | None = None,
    command: str = "",
    kind: str = "run",
) -> dict[str, JsonValue]:
    """Run a flow (``kind``: ``run``, ``sweep`` or ``search``), with or without an earlier plan; write the result, with
    the command line, to ``json_path`` if given."""
    from flows.publish.metadata import run_metadata

    options, started = RunOptions(home, watcher, force, plan, engines, command), time.monotonic()
    token = RUN_OPTIONS.set(options)
    try:
        result: dict[str, JsonValue] = server_watch.run(flow_of(kind)(recipe))
    except asyncio.CancelledError:
        if options.cancelled is not None:
            with contextlib.suppress(
                Exception
            ):  # the flow run or its server may be gone by now; the run has stopped anyway
                asyncio.run(confirm(options.cancelled))
        raise KeyboardInterrupt from None  # stopped by a signal: continue as after Ctrl-C
    finally:
        forget_cancellation()
        RUN_OPTIONS.reset(token)  # these options must not apply to a later run of this process
    if json_path is not None:
        write_json(
            json_path,
            {**result, **run_metadata(recipe, result, home=home, seconds=time.monotonic() - started, command=command)},
        )
    return result


def flow_of(kind: str) -> Any:
    """Return the flow of a kind of run, without a form that no command shows."""
    from flows.deploy.recipe_form import forms

    with forms(with_knobs=False):
        if kind == "sweep":
            from flows.sweep_layers import sweep_layers

            return sweep_layers
        if kind == "search":
            from flows.search_shapes import search_shapes

            return search_shapes
        from flows.compress import compress

        return compress


def watched_run(
    recipe: Recipe,
    *,
    home: Home,
    console: Any,
    ready: Callable[[], None],
    force: frozenset[str] = frozenset(),
    json_path: Path | None = None,
    command: str = "",
    kind: str = "run",
) -> dict[str, JsonValue]:
    """Plan and run a recipe with progress on the console; ``ready`` waits for the Prefect server, which starts during
    planning."""
    from flows.cli.console import Watcher

    plan = planned_session(recipe, home, kind)
    plan.require_plan()
    if kind != "sweep":
        from flows.recipes.planned_rows import planned_rows

        planned_rows(recipe, plan)  # its mistakes are found now, and not after the teacher's training
    with warm_engines(plan) as engines:
        load_libraries(home, kind)
        ready()
        with Watcher(console, len(plan.records)) as watcher:
            return run_recipe(
                recipe,
                home=home,
                watcher=watcher,
                force=force,
                json_path=json_path,
                plan=plan,
                engines=engines,
                command=command,
                kind=kind,
            )


def require_stages(names: Collection[str], plan: Session) -> None:
    """Raise RecipeError for the name of a stage that is not in a plan."""
    known = sorted({record.name for record in plan.records})
    for name in sorted(set(names) - set(known)):
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise RecipeError(f"--force: this run has no stage {name!r}; {hint}its stages are {', '.join(known)}")


def load_libraries(home: Home, kind: str) -> None:
    """Import Prefect and MLflow, and create MLflow's tables in a new home, while the Prefect server starts; the run
    would do the same after it."""
    from tasks.ports.tracking.tracker import Tracker

    flow_of(kind)
    Tracker(home.tracking_uri, home.artifacts).load()


@contextlib.contextmanager
def warm_engines(plan: Session) -> Iterator[ForkServer | None]:
    """Load torch for a plan's engines while servers start. Yield None if no engine runs here, or if every engine loads
    torch itself (several processes)."""
    here = plan.dispatcher is None and plan.processes == 1
    engines = new_fork_server() if here and any(record.cache == "miss" for record in plan.records) else None
    try:
        if engines is not None:
            engines.warm("tasks.training", environment(1))
        yield engines
    finally:
        if engines is not None:  # a run closes it itself, but not if it was refused before its start
            engines.close()


def plan_of(session: Session) -> PlannedRun:
    """Return a plan: every stage, the estimated cost, the savings of the cache, and the reason if the budget is too
    small."""
    rates = session.rates
    costs = [planned_cost(record, rates) for record in session.records]
    rows = [
        StagePlan(
            stage=record.display_name,
            cache=record.cache,
            why=record.why,
            seconds=record.estimate,
            cost=Cost.model_validate(cost),
        )
        for record, cost in zip(session.records, costs, strict=True)
    ]
    total, saved = (
        Cost.model_validate(sum_of(cost for row, cost in zip(rows, costs, strict=True) if row.cache == cache))
        for cache in ("miss", "hit")
    )
    refused = ""
    try:
        session.require_plan()
    except BudgetError as error:
        refused = str(error)
    return PlannedRun(
        stages=tuple(rows),
        total=total,
        saved=saved,
        refused=refused,
        warnings=tuple(rates.warnings),
        teacher_layers=tuple(session.teacher_layers),
    )


def planned_records(recipe: Recipe, home: Home, kind: str = "run") -> list[StageRecord]:
    """Return the stage records of a plan."""
    return planned_session(recipe, home, kind).records


def planned_session(recipe: Recipe, home: Home, kind: str = "run") -> Session:
    """Plan all stages without running them; return the session with their records."""
    from flows.run.opening import plan_session
    from tasks.stage.session import use_session

    recipe, pass_everything = recipe_of_kind(recipe, kind)
    session, sources = plan_session(recipe, home)
    with use_session(session):
        asyncio.run(pass_everything(recipe, sources, session))
    return session


def planned_search(recipe: Recipe, home: Home) -> tuple[Session, SearchResult | TrialsResult, list[str]]:
    """Plan a search without running anything; return the session, what is known of the answer, and that in
    sentences."""
    from flows.branches.all_stages import search_everything
    from flows.branches.search.shapes import of_a_search, planned_words
    from flows.run.opening import plan_session
    from tasks.stage.session import use_session

    recipe = of_a_search(recipe)
    session, sources = plan_session(recipe, home)
    with use_session(session):
        found = asyncio.run(search_everything(recipe, sources, session))
    return session, found.result, planned_words(recipe, found.result, session.records)


def recipe_of_kind(recipe: Recipe, kind: str) -> tuple[Recipe, Callable[..., Coroutine[Any, Any, Any]]]:
    """Return the recipe for a kind of run, and the function that passes all its stages; it needs no Prefect."""
    from flows.branches.all_stages import make_everything, search_everything, sweep_everything
    from flows.branches.search.shapes import of_a_search
    from flows.branches.sweep import of_a_sweep

    if kind == "search":
        return of_a_search(recipe), search_everything
    return (of_a_sweep(recipe), sweep_everything) if kind == "sweep" else (recipe, make_everything)


def demo_recipe(home: Home, seed: int) -> Recipe:
    """Return the demo's recipe with all seeds set, on the generated language of that seed."""
    from flows.run.demo import DEMO, with_language
    from flows.run.recipe_file import load_recipe

    return with_language(
        load_recipe(DEMO, [f"{section}.seed={seed}" for section in ("pretraining", "teacher", "data")]), home
    )


class DemoResult(NamedTuple):
    """The result of the demo's last language, and a summary of all."""

    last: RunResult
    words: str


def run_demo(
    *, seed: int, seeds: int, home: Home, console: Any, ready: Callable[[], None], json_path: Path | None = None
) -> DemoResult:
    """Generate a small language, compress a teacher of it, and compare the distilled student with the same student
    trained without a teacher."""
    from flows.run.demo import last_words, margins

    results = [
        watched_run(
            demo_recipe(home, number),
            home=home,
            console=console,
            ready=ready,
            command=f"limbeck demo --seed {number}",
        )
        for number in range(seed, seed + seeds)
    ]
    known = [RunResult.model_validate(result) for result in results]
    words = last_words(known)
    if json_path is not None:
        write_json(json_path, {**results[-1], "margins": margins(known), "last_words": words})
    return DemoResult(known[-1], words)
