"""Metrics of the servers: whether each is ready, the supervised processes, and the limits of PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from flows.home import Home
from flows.monitoring.server_api import mlflow_of_environment, prefect_of_environment
from flows.stack import supervision
from flows.stack.settings import Stack

DATABASE = "LIMBECK_METRICS_DATABASE"
"""The variable with the address of PostgreSQL, without a password: libpq reads that from ``PGPASSWORD``."""
READY_SECONDS = 3.0
"""Seconds in which a server answers that it is ready: one that hangs is down in every collection, which takes longer.
If it were missing from some, its alarm would begin to wait anew each time."""
LIMITS_QUERY = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT max(age(datfrozenxid)) FROM pg_database)
"""
SIZES_QUERY = "SELECT datname, pg_database_size(oid) FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'"


def prefect_readiness() -> Iterator[Metric]:
    """Yield whether Prefect is ready: alive, and with its database in reach."""
    if (prefect := prefect_of_environment(READY_SECONDS)) is not None:
        yield readiness("prefect", prefect.answers("health", "ready"))


def mlflow_readiness() -> Iterator[Metric]:
    """Yield whether MLflow is ready."""
    if (mlflow := mlflow_of_environment(READY_SECONDS)) is not None:
        yield readiness("mlflow", mlflow.answers("health"))


def readiness(server: str, is_ready: bool) -> Metric:
    """Return the metric of a server's readiness."""
    up = GaugeMetricFamily("limbeck_server_up", "1 if a server is ready, else 0.", labels=["server"])
    up.add_metric([server], is_ready)
    return up


def process_metrics() -> Iterator[Metric]:
    """Yield the state of each process that ``limbeck up`` supervises; nothing in containers, where none is."""
    stack = Stack.of(Home.from_environment())
    supervisor = None if stack.is_new else supervision.connect(stack)
    if supervisor is None:
        return
    up = GaugeMetricFamily("limbeck_process_up", "1 if a process of the stack runs, else 0.", labels=["process"])
    since = GaugeMetricFamily(
        "limbeck_process_start_time_seconds", "Start of a process since the epoch.", labels=["process"]
    )
    for one in supervisor.getAllProcessInfo():
        up.add_metric([one["name"]], one["statename"] == "RUNNING")
        if one["statename"] == "RUNNING":
            since.add_metric([one["name"]], one["start"])
    yield from (up, since)


def database_metrics() -> Iterator[Metric]:
    """Yield PostgreSQL's readiness and the figures that have a limit: connections, and the age of the oldest
    transaction, at two thousand million of which the server refuses to write."""
    address = os.environ.get(DATABASE, "")
    if not address:
        return
    import psycopg2

    try:
        connection = psycopg2.connect(address, connect_timeout=round(READY_SECONDS))
    except psycopg2.OperationalError:
        yield readiness("postgres", False)
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute(LIMITS_QUERY)
            used, most, age = cursor.fetchone() or (0, 0, 0)
            cursor.execute(SIZES_QUERY)
            sizes = cursor.fetchall()
    finally:
        connection.close()
    yield readiness("postgres", True)
    yield GaugeMetricFamily("limbeck_database_connections", "Connections of clients to PostgreSQL.", used)
    yield GaugeMetricFamily("limbeck_database_connections_limit", "Connections that PostgreSQL accepts.", most)
    yield GaugeMetricFamily(
        "limbeck_database_transaction_age", "Transactions since the oldest that is not frozen.", age
    )
    size = GaugeMetricFamily("limbeck_database_size_bytes", "Size of a database on the disk.", labels=["database"])
    for name, amount in sizes:
        size.add_metric([name], amount)
    yield size
