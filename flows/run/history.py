"""Looking after what runs leave behind: why a past run did what it did, whether the store is whole, what may go, and
what a crash left open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from flows.home import Home
from tasks.errors import RecipeError, RegistryError
from tasks.ports.store.collect import Sweep, sweep
from tasks.ports.store.manifests import is_of_this_release
from tasks.ports.store.open import open_store
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe

UNFINISHED = ("RUNNING", "FAILED", "KILLED")


def find_run(tracker: Tracker, run: str | None, statuses: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a run by the start of its id, or the newest with one of the statuses."""
    known = tracker.runs(1000)
    fitting = [
        row for row in known if (row["run"].startswith(run) if run else row["status"] in statuses or not statuses)
    ]
    if not fitting:
        wanted = (
            f"no run {run!r}" if run else f"no run that is {' or '.join(statuses).lower()}" if statuses else "no run"
        )
        raise RegistryError(f"there is {wanted}; see limbeck runs")
    if run and len(fitting) > 1:
        raise RegistryError(f"{len(fitting)} runs start with {run!r}; give more of the id, as limbeck runs shows it")
    return fitting[0]


def recipe_of(tracker: Tracker, run: dict[str, Any], sets: Sequence[str] = ()) -> Recipe:
    """Return the recipe that a run was started with, changed by ``a.b=value`` settings."""
    from flows.run.recipe_file import apply

    values = as_it_was(tracker.recall(run["run"], "recipe"))
    for setting in sets:
        apply(values, setting)
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        what = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
        raise RecipeError(
            f"the recipe of run {run['run'][:8]} is not legal any more ({what}); run an edited one"
        ) from error


def as_it_was(values: dict[str, Any]) -> dict[str, Any]:
    """Say of an older run's recipe what it did not have to say: without rows held back for it, the validation split
    decided."""
    held = (values.get("data") or {}).get("holdout_rows")
    return values if held else {**values, "gate": {"split": "validation", **(values.get("gate") or {})}}


def verify_store(home: Home) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Hash everything in the store anew; yield each manifest with what is wrong with it, or None. What is wrong was set
    aside, or says that it stays."""
    store = open_store(home.store, home.cache)
    for key, problem in list(store.unreadable()):
        yield {"stage": "result", "key": key}, f"{problem}; set aside"
    for manifest in list(store.manifests()):
        problem = store.damage(manifest)  # type: ignore[assignment]
        fate = (
            "set aside"
            if is_of_this_release(manifest)
            else "another release made it, and it is not taken; it stays until limbeck gc"
        )
        yield manifest, f"{problem}; {fate}" if problem else None


def collect(home: Home, tracker: Tracker, *, keep_days: float, dry: bool) -> Sweep:
    """Remove from the store what no registered version, running lease or recent result was made from."""
    registered = [row["checkpoint.sha256"] for row in tracker.models() if "checkpoint.sha256" in row]
    return sweep(open_store(home.store, home.cache), registered, keep_days=keep_days, dry=dry)
