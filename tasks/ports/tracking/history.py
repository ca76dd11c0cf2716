"""Runs of earlier processes in MLflow: list them, read their files, and end those whose process is gone."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, cast

from pydantic import JsonValue

from tasks.ports.tracking.client import Client, every
from tasks.ports.tracking.figures import best_of

# the main metrics that fit into a list of runs
SHOWN = (
    "score",
    "retained_pct",
    "speedup_x",
    "size_mb",
)


def is_training(given: Any) -> bool:
    """Return whether a data set of a run has the use training."""
    return any(tag.key == "mlflow.data.context" and tag.value == "training" for tag in given.tags)


class PastRun(TypedDict):
    """One flow run in lists of runs."""

    run: str
    """Its id."""
    recipe: str
    kind: str
    """``run`` or ``sweep``."""
    experiment: str
    status: str
    started: int
    """Milliseconds since the epoch."""
    best: str
    """Its best candidate, in words."""
    figures: dict[str, float]
    """Figures of the best candidate, by their names in MLflow."""


class LoggedStage(TypedDict):
    """One stage of a flow run, as ``run/stages.json`` has it."""

    stage: str
    state: str
    cache: str
    why: str
    seconds: float
    key: str
    sha256: str | None
    made_by_run: str | None
    """The run that computed it, for a cache hit."""


class LoggedCandidate(TypedDict):
    """One candidate of a flow run, as it was logged."""

    run: str
    """Id of the flow run; empty if it is unknown."""
    data: str
    """Digest of the rows that it was trained with; empty if it is unknown."""
    tags: dict[str, str]
    metrics: dict[str, float]


class RunHistory(Client):
    """The flow runs of all experiments."""

    def runs(self, limit: int) -> list[PastRun]:
        """Return the newest flow runs."""
        with self.asking("list the runs"):
            experiments = {
                experiment.experiment_id: experiment.name for experiment in every(self.client.search_experiments)
            }
            found = self.client.search_runs(
                list(experiments), "tags.limbeck = 'flow'", max_results=limit, order_by=["attributes.start_time DESC"]
            )
            return [
                {
                    "run": run.info.run_id,
                    "recipe": run.data.tags.get("recipe", ""),
                    "kind": run.data.tags.get("limbeck.kind", "run"),
                    "experiment": experiments[run.info.experiment_id],
                    "status": run.info.status,
                    "started": run.info.start_time,
                    "best": best_of(run.data.tags),
                    "figures": {name: run.data.metrics[name] for name in SHOWN if name in run.data.metrics},
                }
                for run in found
            ]

    def candidates_of(self, task: str) -> list[LoggedCandidate]:
        """Return the candidates of all runs of a task, the newest first, each with its tags, its metrics and the digest
        of the rows that it was trained with; runs in which every stage was cached have none of their own."""
        with self.asking(f"list the candidates of {task}"):
            experiments = [experiment.experiment_id for experiment in every(self.client.search_experiments)]
            search = partial(
                self.client.search_runs,
                experiments,
                "tags.limbeck = 'candidate' and attributes.status = 'FINISHED'",
                order_by=["attributes.start_time DESC"],
            )
            return [
                {
                    "run": run.data.tags.get("mlflow.parentRunId", ""),
                    "data": next((one.dataset.digest for one in run.inputs.dataset_inputs if is_training(one)), ""),
                    "tags": run.data.tags,
                    "metrics": run.data.metrics,
                }
                for run in every(search)
                if run.data.tags.get("task") == task
            ]

    def tasks(self) -> list[str]:
        """Return the tasks of all runs that have candidates."""
        with self.asking("list the tasks"):
            experiments = [experiment.experiment_id for experiment in every(self.client.search_experiments)]
            search = partial(self.client.search_runs, experiments, "tags.limbeck = 'candidate'")
            return sorted({run.data.tags["task"] for run in every(search) if "task" in run.data.tags})

    def recall(self, run: str, name: str) -> dict[str, JsonValue]:
        """Return a JSON file that a run has logged: its ``recipe``, ``stages`` or ``ledger``."""
        with self.asking(f"read the {name} of run {run[:8]}"), tempfile.TemporaryDirectory(prefix="limbeck-") as folder:
            text = Path(self.client.download_artifacts(run, f"run/{name}.json", folder)).read_text()
            try:
                return dict(json.loads(text))
            except ValueError as error:
                raise OSError(f"run/{name}.json is not JSON ({error})") from error

    def logged_stages(self, run: str) -> list[LoggedStage]:
        """Return the stages of a run, as it has logged them."""
        return cast(list[LoggedStage], self.recall(run, "stages")["stages"])

    def open_runs(self) -> list[dict[str, str]]:
        """Return the flow runs with status RUNNING in MLflow, each with its process and its Prefect run."""
        with self.asking("list the open runs"):
            experiments = [experiment.experiment_id for experiment in every(self.client.search_experiments)]
            wanted = "tags.limbeck = 'flow' and attributes.status = 'RUNNING'"
            found = self.client.search_runs(experiments, wanted, max_results=1000) if experiments else []
            return [
                {
                    "run": run.info.run_id,
                    "experiment": run.info.experiment_id,
                    "recipe": run.data.tags.get("recipe", ""),
                    "process": run.data.tags.get("limbeck.process", ""),
                    "flow_run": run.data.tags.get("prefect.flow_run_id", ""),
                }
                for run in found
            ]

    def end_for(self, row: Mapping[str, str]) -> int:
        """Set a run whose process is gone, and its child runs, to KILLED; return the number of these runs."""
        with self.asking(f"end run {row['run'][:8]}"):
            runs = [*self.open_below(row["run"], row["experiment"]), row["run"]]
            for run in runs:
                self.client.set_terminated(run, "KILLED")
            return len(runs)

    def open_below(self, run: str, experiment: str) -> list[str]:
        """Return the child runs of a run that have status RUNNING in MLflow."""
        below = f"tags.mlflow.parentRunId = '{run}' and attributes.status = 'RUNNING'"
        return [found.info.run_id for found in self.client.search_runs([experiment], below, max_results=1000)]

    def drop_pending(self, older: float) -> list[str]:
        """Delete logged models older than ``older`` seconds whose upload never finished; return their names."""
        from mlflow.entities import LoggedModelStatus

        with self.asking("remove unfinished models"):
            experiments = [experiment.experiment_id for experiment in every(self.client.search_experiments)]
            found = list(every(partial(self.client.search_logged_models, experiments))) if experiments else []
            limit = (time.time() - older) * 1000
            given_up = (LoggedModelStatus.PENDING, LoggedModelStatus.FAILED)
            named = {version.source for version in every(self.client.search_model_versions)} if found else set()
            old = [model for model in found if model.status in given_up and model.creation_timestamp < limit]
            pending = [
                model for model in old if f"models:/{model.model_id}" not in named
            ]  # a model that a registered version points at is never deleted
            for model in pending:
                self.client.delete_logged_model(model.model_id)
            return [str(model.name) for model in pending]
