"""What a run's page needs of MLflow: the curves of its stages, cached ones by the run that made them, and a place for
the page beside the run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tasks.ports.memo import remembered
from tasks.ports.tracking.tracker import Tracker

CURVES = ("loss", "selection_score")


def read_curves(
    tracker: Tracker, keys: Sequence[str], *, experiment: str | None = None
) -> dict[str, dict[str, list[list[float]]]]:
    """Return the points (step, value) of stages' trainings, by key and figure; stages without curves, or made
    elsewhere, are not there."""
    wanted = set(keys)
    with tracker.asking("read the curves"):
        if experiment is not None:
            found = tracker.client.get_experiment_by_name(experiment)
            tracker.experiment_id = found.experiment_id if found else ""
        runs = {key: run for key, run in tracker.makers().items() if key in wanted} if tracker.experiment_id else {}
        # The run of a stage that has ended does not change; to read all of a recipe's takes MLflow seconds.
        curves = {
            str(key): remembered("curves", [tracker.uri, run], partial(curves_of, tracker, run))
            for key, run in runs.items()
        }
    return {key: found for key, found in curves.items() if found}


def curves_of(tracker: Tracker, run: str) -> dict[str, list[list[float]]]:
    """Return one run's curves; a figure of one point is no curve."""
    there = tracker.client.get_run(run).data.metrics
    asked = {name: tracker.client.get_metric_history(run, name) for name in CURVES if name in there}
    # A stage leaves its last figures at step 0; its curve begins after that.
    points = {
        name: sorted([metric.step, metric.value] for metric in metrics if metric.step > 0)
        for name, metrics in asked.items()
    }
    return {name: found for name, found in points.items() if len(found) > 1}


def keep_result(tracker: Tracker, result: Mapping[str, Any]) -> None:
    """Log what a run made as ``run/result.json`` on the parent run: a page can be made of it at any time."""
    with tracker.asking("keep the result"):
        tracker.client.log_dict(tracker.parent, dict(result), "run/result.json")


def keep_report(tracker: Tracker, page: str, pictures: Mapping[str, bytes] | None = None) -> None:
    """Log a page and its pictures as ``report/`` on the parent run."""
    with tracker.asking("keep the report"), tempfile.TemporaryDirectory(prefix="limbeck-report-") as folder:
        place = Path(folder)
        (place / "report.html").write_text(page, encoding="utf-8")
        for name, content in (pictures or {}).items():
            (place / name).write_bytes(content)
        tracker.client.log_artifacts(tracker.parent, folder, "report")


def keeps(tracker: Tracker, run: str, path: str) -> bool:
    """Tell whether a run keeps a file."""
    with tracker.asking(f"look into run {run[:8]}"):
        return path in {found.path for found in tracker.client.list_artifacts(run, path.rpartition("/")[0])}
