"""Past runs and their store: find a run and its recipe, verify the store's files, and remove results that are no longer
needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flows.home import Home
from tasks.errors import RecipeError, RegistryError
from tasks.ports.store.collect import CollectedGarbage, collect_garbage
from tasks.ports.store.index.earlier import rebuild
from tasks.ports.store.manifests import is_of_this_release
from tasks.ports.store.open import open_store
from tasks.ports.tracking.history import PastRun
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe

UNFINISHED = ("RUNNING", "FAILED", "KILLED")


def find_run(tracker: Tracker, run: str | None, statuses: tuple[str, ...] = ()) -> PastRun:
    """Return a run by the start of its id, or the newest with one of the statuses; raise RegistryError if none or
    several match."""
    known = tracker.runs(1000)
    fitting = [
        row for row in known if (row["run"].startswith(run) if run else row["status"] in statuses or not statuses)
    ]
    if not fitting:
        wanted = (
            f"no run {run!r}"
            if run
            else "no unfinished run"
            if statuses == UNFINISHED
            else f"no run that is {' or '.join(statuses).lower()}"
            if statuses
            else "no run"
        )
        raise RegistryError(f"there is {wanted}; see limbeck runs")
    if run and len(fitting) > 1:
        raise RegistryError(f"{len(fitting)} runs start with {run!r}; give more of the id, as limbeck runs shows it")
    return fitting[0]


def recipe_of(tracker: Tracker, run: str, sets: Sequence[str] = ()) -> Recipe:
    """Return the recipe of the run with this id, changed by ``a.b=value`` settings."""
    from ruamel.yaml.comments import CommentedMap

    from flows.run.recipe_file import apply, validate

    values = CommentedMap(as_it_was(tracker.recall(run, "recipe")))
    for setting in sets:
        apply(values, setting)
    try:
        return validate(values, Path(f"recipe of run {run[:8]}"), [setting.partition("=")[0] for setting in sets])
    except RecipeError as error:
        if sets:
            raise
        raise RecipeError(f"{error}; the recipe is no longer legal: run an edited one") from error


def as_it_was(values: Mapping[str, object]) -> dict[str, object]:
    """Return a recipe with a default that older releases left implicit: without holdout rows, the gate uses the
    validation split."""
    data, gate = values.get("data"), values.get("gate")
    if isinstance(data, Mapping) and data.get("holdout_rows"):
        return dict(values)
    return {**values, "gate": {"split": "validation", **(gate if isinstance(gate, Mapping) else {})}}


class VerifiedResult(NamedTuple):
    """A result of the store after all of its files were read again."""

    stage: str
    key: str
    problem: str | None
    """None if it is intact."""


def verify_store(home: Home) -> Iterator[VerifiedResult]:
    """Recompute all hashes of the store; yield each result with its problem, or None. Damaged results are set aside,
    except those of other releases, as the problem says."""
    store = open_store(home.store, home.cache)
    for key, problem in list(store.unreadable()):
        yield VerifiedResult("result", key, f"{problem}; set aside")
    for manifest in list(store.manifests()):
        damage = store.damage(manifest)
        fate = (
            "set aside"
            if is_of_this_release(manifest)
            else "computed by another release and not used; it stays until limbeck gc"
        )
        yield VerifiedResult(manifest["stage"], manifest["key"], f"{damage}; {fate}" if damage else None)
    rebuild(store)


def collect(home: Home, tracker: Tracker, *, keep_days: float, dry: bool) -> CollectedGarbage:
    """Remove results that no registered version, running lease or recent result depends on; ``dry`` only lists them."""
    registered = [row["checkpoint.sha256"] for row in tracker.models() if "checkpoint.sha256" in row]
    return collect_garbage(open_store(home.store, home.cache), registered, keep_days=keep_days, dry=dry)
