"""The exporter of Limbeck's metrics: ``python -m flows.monitoring.exporter``, a small server that Prometheus asks.

It has a password of its own, ``LIMBECK_METRICS_PASSWORD``, that opens nothing else, and stands behind the guard of all
our servers. A part that fails, because its server is away, leaves its metrics out and says so in
``limbeck_exporter_part_up``; the others are there.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib.metadata import version
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

from flows.monitoring.costs import LedgerSums
from flows.monitoring.machine import disk_metrics, gpu_metrics
from flows.monitoring.servers import database_metrics, mlflow_readiness, prefect_readiness, process_metrics
from flows.monitoring.work import Ended, queue_metrics, slot_metrics, worker_metrics
from flows.servers.access import USER, Access
from flows.servers.guard import Guard

METRICS_PASSWORD = "LIMBECK_METRICS_PASSWORD"
METRICS_PATH, ALIVE = "/metrics", "/health"
FRESH = 5.0  # seconds for which one collection serves everybody who asks
COLLECTION_SECONDS = 8.0  # seconds for all parts, which are read at once: Prometheus itself waits for ten
MetricsPart = Callable[[], Iterable[Metric]]


def parts() -> dict[str, MetricsPart]:
    """Return the parts of the exporter; what ended is counted from now on."""
    return {
        "prefect": prefect_readiness,
        "mlflow": mlflow_readiness,
        "processes": process_metrics,
        "database": database_metrics,
        "disk": disk_metrics,
        "gpu": gpu_metrics,
        "workers": worker_metrics,
        "queues": queue_metrics,
        "slots": slot_metrics,
        "ended": Ended().metrics,
        "costs": LedgerSums().metrics,
    }


class Limbeck(Collector):
    """Collects all parts at once, so that a server that hangs delays no other part; of metrics that two parts share,
    one family is made."""

    def __init__(self, given: dict[str, MetricsPart], patience: float = COLLECTION_SECONDS) -> None:
        """Collect some parts, for at most ``patience`` seconds."""
        self.parts, self.patience = given, patience
        self.threads = ThreadPoolExecutor(len(given))
        self.under_way: dict[str, Future[tuple[list[Metric], float]]] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, and for each part whether it could be read and how long that took."""
        works = GaugeMetricFamily("limbeck_exporter_part_up", "1 if a part could be read, else 0.", labels=["part"])
        took = GaugeMetricFamily("limbeck_exporter_part_seconds", "Seconds to read a part.", labels=["part"])
        families: dict[str, Metric] = {}
        for name, read in self.read_all().items():
            works.add_metric([name], read is not None)
            metrics, seconds = read or ([], self.patience)
            took.add_metric([name], seconds)
            for metric in metrics:
                families.setdefault(metric.name, metric)
                if families[metric.name] is not metric:
                    families[metric.name].samples += metric.samples
        yield InfoMetricFamily("limbeck", "The version of Limbeck.", {"version": version("limbeck")})
        yield from (*families.values(), works, took)

    def read_all(self) -> dict[str, tuple[list[Metric], float] | None]:
        """Return the metrics of each part and how long they took; None for a part that failed or is still at it."""
        for name, part in self.parts.items():
            if name not in self.under_way:
                self.under_way[name] = self.threads.submit(read_part, part)
        wait(self.under_way.values(), self.patience)
        found: dict[str, tuple[list[Metric], float] | None] = dict.fromkeys(self.parts)
        for name, reading in list(self.under_way.items()):
            if reading.done():
                del self.under_way[name]
                if (error := reading.exception()) is None:
                    found[name] = reading.result()
                else:
                    print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            else:
                print(f"{name}: no answer within {self.patience:g} seconds", file=sys.stderr, flush=True)
        return found


def read_part(part: MetricsPart) -> tuple[list[Metric], float]:
    """Return the metrics of a part, and the seconds that they took."""
    began = time.monotonic()
    return list(part()), time.monotonic() - began


class Page:
    """The page of the metrics as an ASGI application; requests within a few seconds get the same text."""

    def __init__(self, collector: Collector, access: Access) -> None:
        """Serve the metrics of a collector to those who know the password."""
        self.access, self.registry = access, CollectorRegistry()
        self.registry.register(collector)
        self.turn, self.text, self.read = threading.Lock(), b"", -FRESH

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        given = Headers(scope=scope).get("authorization", "")
        answer: Response = PlainTextResponse(f"the metrics are at {METRICS_PATH}\n", 404)
        if scope["path"] == ALIVE:  # whether it serves at all, for a supervisor of containers
            answer = PlainTextResponse("OK\n")
        elif not hmac.compare_digest(given.encode(), self.access.basic.encode()):
            told = {"WWW-Authenticate": 'Basic realm="metrics of Limbeck"'}
            answer = PlainTextResponse(f"user {USER}, password {METRICS_PASSWORD}\n", 401, told)
        elif scope["path"] == METRICS_PATH:
            answer = Response(await asyncio.to_thread(self.fresh), media_type=CONTENT_TYPE_PLAIN_0_0_4)
        await answer(scope, receive, send)

    def fresh(self) -> bytes:
        """Return the metrics, collected at most a few seconds ago."""
        with self.turn:
            if time.monotonic() - self.read >= FRESH:
                self.text, self.read = generate_latest(self.registry), time.monotonic()
            return self.text


def main() -> None:
    """Serve until a signal arrives."""
    asked = argparse.ArgumentParser(
        prog="python -m flows.monitoring.exporter", description="Serve Limbeck's metrics for Prometheus."
    )
    asked.add_argument("--host", default="127.0.0.1")
    asked.add_argument("--port", type=int, default=9464)
    asked.add_argument("--url", action="append", default=[], metavar="URL", help="another address of this server")
    given = asked.parse_args()
    password = os.environ.pop(METRICS_PASSWORD, "")
    if not password:
        raise SystemExit(f"the metrics have a password: set {METRICS_PASSWORD}")
    guard = guarded_page(given.port, password, given.url)
    uvicorn.run(guard, host=given.host, port=given.port, log_level="warning", server_header=False)


def guarded_page(port: int, password: str, urls: Iterable[str]) -> Guard:
    """Return the page of all parts behind the guard; ``urls`` are its addresses behind nginx."""
    own = Access(f"http://127.0.0.1:{port}", password)
    return Guard(Page(Limbeck(parts()), own), own, also=[url.rstrip("/") for url in urls])


if __name__ == "__main__":
    main()
