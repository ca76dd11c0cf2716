"""Metrics of the work on a Prefect server: workers, queues, slots of GPUs, and what ended since the exporter began.

What ended is counted once: each collection reads the runs that ended in the last minutes, because Prefect learns of the
end of a task later than it happens, and leaves out those that were counted before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from flows.monitoring.server_api import Api, prefect_of_environment

LATE_REPORT = timedelta(minutes=10)
"""How late the end of a run may reach Prefect and still be counted."""
WITH_STAGES = [
    "compress",
    "compress-from-shelf",
    "sweep-layers",
    "sweep-from-shelf",
    "search-shapes",
    "score-version",
    "branch",
    "drop-by-strategy",
]
"""The flows whose tasks are stages. A stage that another worker computes is counted where it was requested."""
WAITING_STATES, RUNNING_STATES = ("SCHEDULED",), ("RUNNING", "PENDING", "CANCELLING")
HIT, MISS = "hit", "miss"


def worker_metrics() -> Iterator[Metric]:
    """Yield the number of online workers of each pool, 0 if there are none, and whether the pool is paused."""
    prefect = prefect_of_environment()
    if prefect is None:
        return
    count = GaugeMetricFamily("limbeck_workers", "Workers of a pool that are online.", labels=["pool"])
    paused = GaugeMetricFamily("limbeck_pool_paused", "1 if a pool starts nothing, else 0.", labels=["pool"])
    for pool in prefect.listed("work_pools/filter", {}):
        workers = prefect.ask(f"work_pools/{pool['name']}/workers/filter", {})
        count.add_metric([pool["name"]], sum(worker["status"] == "ONLINE" for worker in workers))
        paused.add_metric([pool["name"]], pool["is_paused"])
    yield from (count, paused)


def queue_metrics() -> Iterator[Metric]:
    """Yield the length of each queue, how long its oldest run has waited, and how many runs it has under way."""
    prefect = prefect_of_environment()
    if prefect is None:
        return
    labels = ["pool", "queue"]
    waiting = GaugeMetricFamily("limbeck_queue_length", "Runs that are due and have not started.", labels=labels)
    oldest = GaugeMetricFamily("limbeck_queue_oldest_seconds", "Seconds since the first was due.", labels=labels)
    running = GaugeMetricFamily("limbeck_queue_running", "Runs of a queue under way.", labels=labels)
    limit = GaugeMetricFamily("limbeck_queue_limit", "Runs of a queue at once; missing without a limit.", labels=labels)
    for pool in prefect.listed("work_pools/filter", {}):
        for queue in prefect.ask(f"work_pools/{pool['name']}/queues/filter", {}):
            names = [pool["name"], queue["name"]]
            due = due_runs(*names)
            length = prefect.ask("flow_runs/count", due)
            waiting.add_metric(names, length)
            oldest.add_metric(names, longest_wait(prefect, due) if length else 0)
            under_way = runs_in(pool["name"], queue["name"], RUNNING_STATES)
            running.add_metric(names, prefect.ask("flow_runs/count", under_way))
            places = [one["concurrency_limit"] for one in (pool, queue) if one["concurrency_limit"] is not None]
            if places:
                limit.add_metric(names, min(places))
    yield from (waiting, oldest, running, limit)


def runs_in(pool: str, queue: str, states: tuple[str, ...]) -> dict[str, object]:
    """Return the filter of a queue's flow runs in some states."""
    return {
        "flow_runs": {"state": {"type": {"any_": list(states)}}},
        "work_pools": {"name": {"any_": [pool]}},
        "work_pool_queues": {"name": {"any_": [queue]}},
    }


def due_runs(pool: str, queue: str) -> dict[str, object]:
    """Return the filter of a queue's flow runs that wait although their time has come."""
    due = {"before_": datetime.now(UTC).isoformat()}
    waiting = {"state": {"type": {"any_": list(WAITING_STATES)}}, "next_scheduled_start_time": due}
    return runs_in(pool, queue, WAITING_STATES) | {"flow_runs": waiting}


def longest_wait(prefect: Api, due: Mapping[str, object]) -> float:
    """Return for how many seconds the first of the due runs has waited."""
    first = prefect.ask("flow_runs/filter", {**due, "sort": "NEXT_SCHEDULED_START_TIME_ASC", "limit": 1})
    return age_of(first[0]["next_scheduled_start_time"]) if first else 0.0


def age_of(time: str) -> float:
    """Return the seconds since a time of Prefect's."""
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(time.replace("Z", "+00:00"))).total_seconds())


def slot_metrics() -> Iterator[Metric]:
    """Yield the slots of the global concurrency limits; trainings hold those of ``gpu``."""
    prefect = prefect_of_environment()
    if prefect is None:
        return
    slots = GaugeMetricFamily("limbeck_slots", "Slots of a concurrency limit.", labels=["limit"])
    used = GaugeMetricFamily("limbeck_slots_used", "Slots of a concurrency limit that are taken.", labels=["limit"])
    for one in prefect.listed("v2/concurrency_limits/filter", {}):
        if not one["name"].startswith("deployment:"):
            slots.add_metric([one["name"]], one["limit"])
            used.add_metric([one["name"]], one["active_slots"])
    yield from (slots, used)


class Counts:
    """A counter of Prometheus with its figures by their labels."""

    def __init__(self, name: str, said: str, *labels: str) -> None:
        """Begin to count."""
        self.name, self.said, self.labels = name, said, labels
        self.figures: dict[tuple[str, ...], float] = {}
        self.shown: set[tuple[str, ...]] = set()

    def add(self, key: tuple[str, ...], amount: float = 1.0) -> None:
        """Add to the figure of some labels."""
        self.figures[key] = self.figures.get(key, 0.0) + amount

    def metric(self) -> Metric:
        """Return the counter. Prometheus takes the first figure that it reads for the beginning, so a new one is 0 at
        first, and has its figure from the next time on."""
        metric = CounterMetricFamily(self.name, self.said, labels=self.labels)
        for key, value in self.figures.items():
            metric.add_metric(list(key), value if key in self.shown else 0.0)
        self.shown |= set(self.figures)
        return metric


class Ended:
    """Counts the flow runs and the stages that ended since this exporter began."""

    def __init__(self) -> None:
        """Begin to count now."""
        self.began = datetime.now(UTC)
        self.counted: dict[str, datetime] = {}
        labels = ("stage", "cache", "state")
        self.runs = Counts("limbeck_flow_runs", "Flow runs that ended.", "flow", "state")
        self.stages = Counts("limbeck_stages", "Stages that ended: cache hits, and others.", *labels)
        self.seconds = Counts("limbeck_stage_seconds", "Seconds of the stages that ended.", *labels)

    def metrics(self) -> Iterator[Metric]:
        """Yield the counters, after a request to the server."""
        prefect = prefect_of_environment()
        if prefect is None:
            return
        self.read_ended(prefect)
        yield from (counts.metric() for counts in (self.runs, self.stages, self.seconds))

    def read_ended(self, prefect: Api) -> None:
        """Count what ended and was not counted before."""
        since = max(self.began, datetime.now(UTC) - LATE_REPORT)
        ended = {"end_time": {"after_": since.isoformat()}}
        flows = {flow["id"]: flow["name"] for flow in prefect.listed("flows/filter", {})}
        for run in prefect.listed("flow_runs/filter", {"flow_runs": ended, "sort": "END_TIME_DESC"}):
            if self.is_new(run):
                self.runs.add((flows.get(run["flow_id"], ""), run["state_name"].lower()))
        # A flow run within a run has a task run there, too, which is no stage.
        wanted = {"task_runs": {**ended, "subflow_runs": {"exists_": False}}, "flows": {"name": {"any_": WITH_STAGES}}}
        for run in prefect.listed("task_runs/filter", {**wanted, "sort": "END_TIME_DESC"}):
            if self.is_new(run):
                named = (run["name"].partition("/")[0], *outcome(run["state_name"]))
                self.stages.add(named)
                self.seconds.add(named, float(run["total_run_time"] or 0))
        self.counted = {key: time for key, time in self.counted.items() if time > since - LATE_REPORT}

    def is_new(self, run: Mapping[str, Any]) -> bool:
        """Return whether a run that ended was not counted before; one that ended again counts again."""
        key = f"{run['id']} {run['end_time']}"
        if key in self.counted:
            return False
        self.counted[key] = datetime.now(UTC)
        return True


def outcome(state: str) -> tuple[str, str]:
    """Return whether a stage was a cache hit, and its state, from the name of its task's state."""
    return (HIT, "completed") if state == "Cached" else (MISS, state.lower())
