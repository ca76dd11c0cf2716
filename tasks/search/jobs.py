"""The jobs of the search engine, by name."""

from __future__ import annotations

from tasks.search.latency_table import measure_latency_table

JOBS = {"latency-table": measure_latency_table}
