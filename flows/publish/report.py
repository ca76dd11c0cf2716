"""The page of a run: rendered at its end and stored with it, or rendered again later from the result in MLflow. A
failure here does not fail the run."""

from __future__ import annotations

import asyncio
import os
import time
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path

from prefect.logging import get_run_logger
from pydantic import JsonValue

from flows.branches.error_analysis import lineage_of, texts_in, texts_of
from flows.home import Home
from flows.publish.licences import licences_of
from flows.publish.metadata import made_by
from flows.run.demo import texts_to_ask
from flows.run.opening import Run
from flows.run.stopping import RUN_OPTIONS
from tasks.errors import LimbeckError, RecipeError, RegistryError
from tasks.ports.store.open import open_store
from tasks.ports.tracking.history import PastRun
from tasks.ports.tracking.run_files import keep_report, keep_result, keeps, read_curves
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.report.page.page import PAGE, report_link, run_page, sweep_page
from tasks.report.page.picture import pareto_picture
from tasks.results.record import AboutRun
from tasks.results.run import RunResult
from tasks.results.sweep import read_sweep
from tasks.scoring.inspection_files import Texts


def for_the_page(recipe: Recipe, run: Run) -> AboutRun:
    """Return the content of a page beside the figures: the confidence of intervals, the run's id and provenance, the
    graph of stages, licences, and the file of texts for the suggested commands."""
    options = RUN_OPTIONS.get()
    made = made_by(recipe, seconds=time.monotonic() - run.session.opened, command=options.command if options else "")
    return AboutRun(
        run=run.tracker.parent,
        confidence=recipe.scoring.confidence,
        made=made,
        lineage=lineage_of(run.session, run.sources),
        licences=tuple(licences_of(recipe)),
        texts=texts_to_ask(recipe),
    )


async def leave_report(links: Mapping[str, str], make: Callable[[], None]) -> dict[str, JsonValue]:
    """Store a run's page with the run in MLflow, by ``make``; return the page's path and link. An error here is logged
    as a warning and affects nothing else."""
    try:
        await asyncio.to_thread(make)
    except Exception as error:
        said = str(error).strip().splitlines()
        get_run_logger().warning(
            f"the report could not be written ({type(error).__name__}: {said[0] if said else 'no message'}); all "
            f"other results of this run are stored"
        )
        return {}
    return {"artifact": PAGE, "link": report_link(links)}


def make_report(recipe: Recipe, run: Run, result: RunResult) -> None:
    """Render a run's page and picture, and log them together with the result."""
    keep_result(run.tracker, result.as_json())  # first: if the page fails, it can be rendered from the result later
    curves = read_curves(run.tracker, [stage.key for stage in result.stages])
    page = run_page(result, curves=curves, texts=texts_of(run.session) if recipe.report.texts else None)
    keep_report(run.tracker, page, {"pareto.svg": pareto_picture(result).encode()})


# --- of a past run ----------------------------------------------------------------------------------------------------


def past_report(tracker: Tracker, found: PastRun, *, home: Home, texts: bool) -> str:
    """Return the page of a past run, from its result in MLflow; texts come from the store, if they are still there."""
    name = "sweep" if found["kind"] == "sweep" else "result"
    if not keeps(tracker, found["run"], f"run/{name}.json"):
        about = f"run {found['run'][:8]} ({found['status'].lower()}) has no stored result for a report"
        raise RegistryError(
            f"{about}: it did not finish, or is of an older version; run its recipe again, cached stages are not "
            f"repeated"
        )
    result = {**tracker.recall(found["run"], name), "run": found["run"]}
    if name == "sweep":
        return sweep_page(read_sweep(result))
    known = RunResult.model_validate(result)
    curves = read_curves(tracker, [stage.key for stage in known.stages], experiment=found["experiment"])
    shown = stored_texts(home, known) if texts and shows_texts(tracker, found["run"]) else None
    return run_page(known, curves=curves, texts=shown)


def shows_texts(tracker: Tracker, run: str) -> bool:
    """Return whether a run's recipe allows texts on its page."""
    section = tracker.recall(run, "recipe").get("report")
    return bool(section.get("texts", True)) if isinstance(section, dict) else True


def stored_texts(home: Home, result: RunResult) -> Texts | None:
    """Return the texts of displayed rows from the store; None if the store does not have them (any more)."""
    store = open_store(home.store, home.cache)
    try:
        found = [store.find(stage.key) for stage in result.stages if stage.name == "inspect-answers"]
        kept = [store.folder(artifact) for artifact in found if artifact is not None]
    except LimbeckError:
        return None
    return texts_in(kept) if kept else None


def place_of_report(output: Path | None, run: str, home: Home) -> Path:
    """Return the path of a page: the requested one, else one in the home folder. Raises RecipeError for a path that
    cannot be written."""
    target = (output or home.root / "reports" / f"{run[:8]}.html").absolute()
    if output is None:
        target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.is_dir() or target.is_dir():
        raise RecipeError(f"{target} cannot be written: name a file in an existing folder, with --output FILE.html")
    return target


def write_page(page: str, target: Path) -> None:
    """Write a page atomically."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(target)


def open_page(path: Path) -> bool:
    """Open a page in the browser; return whether there is one."""
    return webbrowser.open(path.as_uri())
