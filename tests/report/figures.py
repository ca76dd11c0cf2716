"""Rows of results as a run makes them."""

from __future__ import annotations

from typing import Any


def row(name: str, role: str = "student", **changes: Any) -> dict[str, Any]:
    """Return one row; every figure can be replaced."""
    score = {"value": 0.912, "low": 0.9, "high": 0.924}
    return {
        "name": name, "role": role, "headline": "accuracy", "metrics": {"validation": {"accuracy": score}},
        "retained": {"validation": {"value": 0.981, "low": 0.97, "high": 0.99}}, "agreement": {"validation": 0.95}, "parameters": 14_350_248,
        "bytes": 57_400_992, "flops": 1_200_000_000, "flops_length": 128, "latency_ms": 4.321, "latency_p95_ms": 5.0, "speedup": 9.41,
        "memory_bytes": 300_000_000, "truncated": 0.01, "measured_at": {"batch": 1, "length": 32, "threads": 1, "repeats": 30, "engine": "torch, eager"},
        "gate": "—", "checkpoint": "c" * 64,
    } | changes  # fmt: skip


def undefined(name: str) -> dict[str, Any]:
    """Return a row in which everything that can be undefined is."""
    nothing = {"value": None, "low": None, "high": None}
    figures = dict.fromkeys(("parameters", "bytes", "flops", "latency_ms", "latency_p95_ms", "speedup", "memory_bytes", "truncated"))
    return row(name, metrics={"validation": {"accuracy": nothing}}, retained={"validation": nothing}, agreement={}, **figures)
