"""Reproduction of a past run: repeat it without the cache and compare the results with its manifest, stage by stage.

The second run is a process of its own with a home of its own: it takes nothing from the cache, registers nothing in
the user's registry and sends no notices.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flows.home import Home
from flows.run.history import as_it_was
from tasks.errors import DataError, EngineError, RecipeError, RegistryError
from tasks.ports.tracking.history import PastRun
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.judging import own_metrics_of
from tasks.recipe.recipe import Recipe
from tasks.results.record import Reproduction, RunManifest

ROOT = Path(__file__).resolve().parents[2]
DIFFERENT = 3  # exit status of a successful reproduction with different bytes
STOPPED = 130
NOT_THERE = ("LIMBECK_STORE", "LIMBECK_DISPATCH", "LIMBECK_NOTIFY", "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
"""Variables with which the second run would read from or write to more than its own home."""


def reproduce(
    tracker: Tracker,
    found: PastRun,
    *,
    home: Home,
    environment: Mapping[str, str],
    keep: Path | None = None,
    from_cache: bool = False,
    anyway: bool = False,
) -> Reproduction:
    """Repeat a past run, or with ``from_cache`` look up its results in the store, and compare."""
    from tasks.report.reproduction import compare

    then = manifest_of_run(tracker, found)
    recipe = Recipe.model_validate(recipe_again(then))
    changed = changed_sources(recipe, then, home)
    if changed and not anyway:
        raise DataError(f"{'; '.join(changed)}: the results would differ; restore the old files, or compare --anyway")
    if from_cache:
        now = found_in_store(recipe, then, home)
    else:
        with own_folder(keep) as folder:
            take_metrics_along(recipe, home, folder / "home")
            now = run_again(then, folder, environment)
    return compare(then, now).replaced(run=found["run"], sources=changed)


def manifest_of_run(tracker: Tracker, found: PastRun) -> RunManifest:
    """Return the manifest of a run; raise RegistryError if there is none, as only finished runs have one."""
    try:
        return RunManifest.model_validate(tracker.recall(found["run"], "manifest"))
    except RegistryError as error:
        raise RegistryError(
            f"run {found['run'][:8]} has no manifest: it did not finish, or is of an older release; see limbeck runs "
            f"for others"
        ) from error


def recipe_again(then: RunManifest) -> dict[str, object]:
    """Return the recipe of a run with its original cores and threads, independent of today's defaults."""
    values = as_it_was({name: value for name, value in then.recipe.items() if name != "notify"})
    hardware = then.hardware
    # Older releases had no knob for threads: a stage that ran alone had half of the cores.
    alone = hardware.get("threads_alone", max(1, int(hardware["cores"] or 1) // 2))
    used = {"cores": hardware["cores"], "threads": hardware["threads"], "threads_alone": alone}
    before = values.get("resources")
    return {**values, "resources": {**(before if isinstance(before, Mapping) else {}), **used}}


def changed_sources(recipe: Recipe, then: RunManifest, home: Home) -> list[str]:
    """Return a message for each source of a run that has changed since."""
    from flows.run.opening import find_sources

    now = {name: artifact.sha256 for name, artifact in find_sources(recipe, home).items()}
    return [
        f"the source {name!r} has changed since (digest {noted.sha256[:8]} then, {now.get(name, 'none')[:8]} now)"
        for name, noted in then.sources.items()
        if now.get(name) != noted.sha256
    ]


def found_in_store(recipe: Recipe, then: RunManifest, home: Home) -> RunManifest:
    """Return a manifest of the store's results for this recipe and today's code, without running anything."""
    from flows.cli.runner import planned_records
    from flows.publish.manifest import code_state, hardware_of, library_versions, stage_row

    os.environ["LIMBECK_PROCESSES"] = str(then.hardware.get("processes", 1))  # as in the second run
    rows = [stage_row(record) for record in planned_records(recipe, home, then.kind)]
    return RunManifest(versions=library_versions(), hardware=hardware_of(recipe), code=code_state(), stages=tuple(rows))


@contextmanager
def own_folder(keep: Path | None) -> Iterator[Path]:
    """Yield a new folder for the second run: the one to keep, or a temporary one."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="limbeck-again-") as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise RecipeError(f"{keep} already exists and is not empty; name a new folder with --keep")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


def take_metrics_along(recipe: Recipe, home: Home, other: Path) -> None:
    """Copy the registered metrics of a recipe, whose digests were compared, into the home of the second run."""
    from tasks.ports.own_metrics import metric_folder

    for name in own_metrics_of(recipe.scoring):
        shutil.copytree(metric_folder(home.root, name), metric_folder(other, name))


def run_again(then: RunManifest, folder: Path, environment: Mapping[str, str]) -> RunManifest:
    """Run the recipe in a home of its own and return the new manifest; the run prints to this command's output."""
    (folder / "recipe.json").write_text(json.dumps(recipe_again(then), indent=1))
    command = [
        sys.executable,
        "-P",
        "-m",
        "flows.cli",
        then.kind,
        str(folder / "recipe.json"),
        "--json",
        str(folder / "result.json"),
    ]
    own = {name: value for name, value in environment.items() if name not in NOT_THERE}
    path = os.pathsep.join([str(ROOT), *filter(None, [own.get("PYTHONPATH")])])
    processes = str(then.hardware.get("processes", 1))
    done = run_to_its_end(
        command, own | {"LIMBECK_HOME": str(folder / "home"), "PYTHONPATH": path, "LIMBECK_PROCESSES": processes}
    )
    if done == STOPPED:
        raise KeyboardInterrupt
    if done != 0:
        raise EngineError(f"the second run ended with status {done}; its output is above")
    return RunManifest.model_validate(json.loads((folder / "result.json").read_text())["manifest"])


def run_to_its_end(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command and return its status; Ctrl-C reaches it, too, and is raised after it has stopped in order."""
    from tasks.engine.job import die_with_parent

    with subprocess.Popen(
        command, env=dict(environment), stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
    ) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise
