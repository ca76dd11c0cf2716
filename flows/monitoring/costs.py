"""Metrics of the costs: the ledgers of the runs that ended, as MLflow has them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily

from flows.monitoring.server_api import Api, mlflow_of_environment

COST_LOOK_SECONDS = 60.0  # between two requests: each costs MLflow a tenth of a second, for the hash of the password
LATE_MILLISECONDS = 600_000  # milliseconds; a run that ended may be written a little later
LEDGER_METRICS = {
    "dollars": ("limbeck_cost_dollars", "Estimated price"),
    "kwh": ("limbeck_cost_energy_kwh", "Estimated energy"),
    "co2e_kg": ("limbeck_cost_co2e_kg", "Estimated emissions"),
}
"""The totals of a ledger by their names in MLflow, for each its metric and its words."""
SAVED_PREFIX = "saved_"


class LedgerSums:
    """Adds up the ledgers of the runs that ended since this exporter began."""

    def __init__(self) -> None:
        """Begin to add now."""
        self.began = int(time.time() * 1000)
        self.counted: dict[str, int] = {}
        self.last_read = -COST_LOOK_SECONDS
        self.thread = ThreadPoolExecutor(1)
        self.reading: Future[None] | None = None
        self.sums = {f"{before}{name}": 0.0 for before in ("", SAVED_PREFIX) for name in LEDGER_METRICS}

    def metrics(self) -> Iterator[Metric]:
        """Yield the sums so far. A busy MLflow answers in more seconds than Prometheus waits, so it is asked in the
        background; the error of a request that failed is raised here."""
        mlflow = mlflow_of_environment(COST_LOOK_SECONDS)
        if mlflow is None:
            return
        ended, self.reading = self.reading, None
        if ended is not None and not ended.done():
            self.reading = ended
        elif ended is not None:
            ended.result()
        if self.reading is None and time.monotonic() - self.last_read >= COST_LOOK_SECONDS:
            self.last_read, self.reading = time.monotonic(), self.thread.submit(self.read_ledgers, mlflow)
        for name, (called, said) in LEDGER_METRICS.items():
            metric = CounterMetricFamily(called, f"{said} of the runs that ended, by source.", labels=["source"])
            metric.add_metric(["computed"], self.sums[name])
            metric.add_metric(["saved-by-cache"], self.sums[f"{SAVED_PREFIX}{name}"])
            yield metric

    def read_ledgers(self, mlflow: Api) -> None:
        """Add the ledgers of runs that ended and were not added before."""
        since = max(self.began, int(time.time() * 1000) - LATE_MILLISECONDS)
        for run in ended_runs(mlflow, since):
            identity = run["info"]["run_id"]
            figures = {one["key"]: float(one["value"]) for one in run["data"].get("metrics", ())}
            if identity not in self.counted and set(figures) & set(self.sums):
                self.counted[identity] = since
                for name in self.sums:
                    self.sums[name] += figures.get(name, 0.0)
        self.counted = {key: when for key, when in self.counted.items() if when > since - LATE_MILLISECONDS}


def ended_runs(mlflow: Api, since: int) -> Iterator[dict]:
    """Yield MLflow's runs of recipes that ended after a time."""
    found = mlflow.ask("api/2.0/mlflow/experiments/search", {"max_results": 1000})
    experiments = [one["experiment_id"] for one in found.get("experiments", ())]
    if not experiments:
        return
    wanted = {
        "experiment_ids": experiments,
        "filter": f"attributes.end_time > {since} and tags.`limbeck.kind` != ''",
        "max_results": 1000,
    }
    yield from mlflow.ask("api/2.0/mlflow/runs/search", wanted).get("runs", ())
