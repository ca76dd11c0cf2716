"""MLflow data for a run's page: the curves of its stages, for cached stages from the run that computed them, and the
upload of the page."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tasks.ports.memo import remembered
from tasks.ports.tracking.tracker import Tracker

CURVES = ("loss", "selection_score")


def read_curves(
    tracker: Tracker, keys: Sequence[str], *, experiment: str | None = None
) -> dict[str, dict[str, list[list[float]]]]:
    """Return the training curves of stages as points (step, value), by key and metric; stages without curves, or
    computed in another experiment, are left out."""
    wanted = set(keys)
    with tracker.asking("read the curves"):
        if experiment is not None:
            found = tracker.client.get_experiment_by_name(experiment)
            tracker.experiment_id = found.experiment_id if found else ""
        runs = {key: run for key, run in tracker.makers().items() if key in wanted} if tracker.experiment_id else {}
        # The run of a finished stage does not change, and MLflow needs seconds to read all stages of a recipe.
        curves = {
            str(key): remembered("curves", [tracker.uri, run], partial(curves_of, tracker, run))
            for key, run in runs.items()
        }
    return {key: found for key, found in curves.items() if found}


def curves_of(tracker: Tracker, run: str) -> dict[str, list[list[float]]]:
    """Return one run's curves; a metric with only one point is left out."""
    there = tracker.client.get_run(run).data.metrics
    asked = {name: tracker.client.get_metric_history(run, name) for name in CURVES if name in there}
    # A stage logs its final metrics at step 0; its curve starts at step 1.
    points = {
        name: sorted([metric.step, metric.value] for metric in metrics if metric.step > 0)
        for name, metrics in asked.items()
    }
    return {name: found for name, found in points.items() if len(found) > 1}


def keep_result(tracker: Tracker, result: Mapping[str, object]) -> None:
    """Log a run's result as ``run/result.json`` on the parent run, so that its page can be rendered at any time."""
    with tracker.asking("store the result"):
        tracker.client.log_dict(tracker.parent, dict(result), "run/result.json")


def has_result(tracker: Tracker, run: str) -> bool:
    """Return whether a run has a stored result."""
    return keeps(tracker, run, "run/result.json")


def keep_report(tracker: Tracker, page: str, pictures: Mapping[str, bytes] | None = None) -> None:
    """Log a page and its pictures as ``report/`` on the parent run."""
    with tracker.asking("store the report"), tempfile.TemporaryDirectory(prefix="limbeck-report-") as folder:
        place = Path(folder)
        (place / "report.html").write_text(page, encoding="utf-8")
        for name, content in (pictures or {}).items():
            (place / name).write_bytes(content)
        tracker.client.log_artifacts(tracker.parent, folder, "report")


def keeps(tracker: Tracker, run: str, path: str) -> bool:
    """Return whether a run has a file."""
    with tracker.asking(f"inspect run {run[:8]}"):
        return path in {found.path for found in tracker.client.list_artifacts(run, path.rpartition("/")[0])}
