"""The provenance part of a result file: date, command, commit, versions, machine and duration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version

from pydantic import JsonValue, TypeAdapter

from flows.home import Home
from flows.run.opening import PINNED, teacher_name
from tasks.ports.machine import available_cores, cpu_model, gpu_model
from tasks.ports.store.open import open_store
from tasks.ports.tracking.runs import made_with
from tasks.recipe.recipe import Recipe
from tasks.results.record import Provenance
from tasks.results.run import StageLine

STAGES = TypeAdapter(tuple[StageLine, ...])


def run_metadata(
    recipe: Recipe, result: Mapping[str, JsonValue], *, home: Home, seconds: float, command: str
) -> dict[str, JsonValue]:
    """Return the kind and the provenance of a result; ``command`` is empty if it was not recorded."""
    made = made_by(recipe, seconds=seconds, command=command)
    minutes = {**made.minutes, "cached": round(cached_seconds(result, home) / 60, 2)}
    return {"kind": "sweep" if "cells" in result else "run", "made": made.replaced(minutes=minutes).as_json()}


def made_by(recipe: Recipe, *, seconds: float, command: str) -> Provenance:
    """Return the provenance of a run, as far as the run itself knows it."""
    return Provenance(
        teacher=teacher_name(recipe),
        date=datetime.now(UTC).date().isoformat(),
        command=command,
        commit=made_with().get("mlflow.source.git.commit"),
        versions={name: version(name) for name in PINNED},
        hardware={"cpu": cpu_model(), "cores": recipe.resources.cores or available_cores(), "gpu": gpu_model()},
        minutes={"run": round(seconds / 60, 2)},
    )


def cached_seconds(result: Mapping[str, JsonValue], home: Home) -> float:
    """Return the total seconds of the run's cached stages when they were computed."""
    hits = {stage.key for stage in STAGES.validate_python(result["stages"]) if stage.cache == "hit"}
    if not hits:
        return 0.0
    store = open_store(home.store, home.cache)
    found = [store.manifest(key) for key in hits]
    return sum(manifest.get("seconds", 0.0) for manifest in found if manifest is not None)
