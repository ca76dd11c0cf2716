"""Past runs from MLflow for a comparison."""

from __future__ import annotations

from datetime import datetime

from tasks.errors import RegistryError
from tasks.ports.tracking.history import PastRun
from tasks.ports.tracking.run_context import flat_parameters
from tasks.ports.tracking.run_files import has_result
from tasks.ports.tracking.tracker import Tracker
from tasks.report.comparison import ComparedRun
from tasks.results.run import RunResult


def compared_run(tracker: Tracker, found: PastRun) -> ComparedRun:
    """Return a run with its recipe and its result; raise RegistryError for a sweep, and for a run without a result."""
    short = found["run"][:8]
    if found["kind"] == "sweep":
        raise RegistryError(f"{short} is a sweep, whose models have no gate and no costs of their own; name two runs")
    if not has_result(tracker, found["run"]):
        raise RegistryError(
            f"run {short} ({found['status'].lower()}) has no stored result to compare; name finished runs, as limbeck "
            f"runs shows them"
        )
    started = datetime.fromtimestamp(found["started"] / 1000).strftime("%Y-%m-%d %H:%M")
    knobs = flat_parameters(tracker.recall(found["run"], "recipe"))
    return ComparedRun(short, started, knobs, RunResult.model_validate(tracker.recall(found["run"], "result")))
