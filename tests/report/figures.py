"""Rows of results as a run makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tasks.results.row import ResultRow


def row(name: str, role: str = "student", **changes: Any) -> dict[str, Any]:
    """Return one row; every figure can be replaced."""
    score = {"value": 0.912, "low": 0.9, "high": 0.924}
    return {
        "name": name,
        "role": role,
        "headline": "accuracy",
        "metrics": {"validation": {"accuracy": score}},
        "retained": {"validation": {"value": 0.981, "low": 0.97, "high": 0.99}},
        "agreement": {"validation": 0.95},
        "parameters": 14_350_248,
        "bytes": 57_400_992,
        "flops": 1_200_000_000,
        "flops_length": 128,
        "latency_ms": 4.321,
        "latency_p95_ms": 5.0,
        "speedup": 9.41,
        "memory_bytes": 300_000_000,
        "truncated": 0.01,
        "measured_at": {"batch": 1, "length": 32, "threads": 1, "repeats": 30, "engine": "torch, eager"},
        "gate": "—",
        "checkpoint": "c" * 64,
    } | changes


def stated(name: str, role: str = "student", **changes: Any) -> ResultRow:
    """Return one row as the rooms of a run get it."""
    return ResultRow.model_validate(row(name, role, **changes))


def typed(rows: Iterable[Mapping[str, Any]]) -> list[ResultRow]:
    """Return rows as the rooms of a run get them."""
    return [ResultRow.model_validate(one) for one in rows]


def undefined(name: str) -> dict[str, Any]:
    """Return a row in which everything that can be undefined is."""
    nothing = {"value": None, "low": None, "high": None}
    figures = dict.fromkeys(
        ("parameters", "bytes", "flops", "latency_ms", "latency_p95_ms", "speedup", "memory_bytes", "truncated")
    )
    return row(
        name, metrics={"validation": {"accuracy": nothing}}, retained={"validation": nothing}, agreement={}, **figures
    )


def written(
    recipe: str = "tinybert-4", task: str = "sst2", *, models: list[dict[str, Any]] | None = None, **made: Any
) -> dict[str, Any]:
    """Return what ``limbeck run --json`` writes of a finished run."""
    common = {
        "plain": False,
        "against": {},
        "difference": {"validation": {"value": -0.01, "low": -0.02, "high": 0.0}},
        "seeds": [0, 1, 2],
        "deviation": {"validation": {"accuracy": 0.0042}},
        "per_seed": {"validation": {"accuracy": [0.91, 0.912, 0.914]}},
        "steps": [1000] * 3,
        "train_seconds": [120.0] * 3,
        "train_rows": "not kept",
    }
    alone = {
        "seeds": [0],
        "deviation": {"validation": {"accuracy": None}},
        "per_seed": {"validation": {"accuracy": [0.95]}},
    }
    beats = {
        "finetuned": {
            "validation": {"value": 0.012, "low": 0.004, "high": 0.02, "p": 0.004, "seeds": [3, 3], "verdict": "better"}
        }
    }
    own = [
        row("teacher", "teacher", parameters=22_700_000, **common | alone),
        row("4x312", **common | {"against": beats}),
        row("finetuned", "baseline", **common | {"plain": True, "deviation": {"validation": {"accuracy": 0.001}}}),
    ]
    return {
        "kind": "run",
        "recipe": recipe,
        "task": task,
        "headline": "accuracy",
        "split": "validation",
        "rows": {"train": 60_000, "validation": 872},
        "synthetic": False,
        "stages": [],
        "models": own if models is None else models,
        "registered": [],
        "links": {},
        "made": account(**made),
    }


def account(**changes: Any) -> dict[str, Any]:
    """Return how a run was made."""
    return {
        "teacher": "minilm",
        "date": "2026-11-21",
        "commit": "a" * 40,
        "versions": {"torch": "2.13.0", "transformers": "5.23.0"},
        "command": "limbeck run tinybert-4 --set teacher.model=/home/ann/models/minilm --set "
        "'students.4x312.seeds=[0, 1, 2]'",
        "hardware": {"cpu": "AMD EPYC 9R14", "cores": 4, "gpu": None},
        "minutes": {"run": 12.34567, "cached": 30.2},
    } | changes


def swept(**changes: Any) -> dict[str, Any]:
    """Return what ``limbeck sweep --json`` writes of a finished sweep."""

    def cell(strategy: str, drop: int, value: float, **more: Any) -> dict[str, Any]:
        score = {"value": value, "low": value - 0.01, "high": value + 0.01}
        return {
            "strategy": strategy,
            "drop": drop,
            "state": "scored",
            "score": score,
            "deviation": 0.002,
            "per_seed": [value] * 3,
            "chosen": False,
        } | more

    sizes = {"parameters": 22_700_000, "bytes": 90_000_000, "flops": 1_000_000_000}
    cells = [
        cell("top", 1, 0.93, chosen=True),
        cell("bottom", 1, 0.92),
        cell("top", 2, 0.91, chosen=True),
        {"strategy": "bottom", "drop": 2, "layers": 4, "state": "dropped out", "chosen": False},
    ]
    return {
        "kind": "sweep",
        "recipe": "sst2-tinybert",
        "task": "sst2",
        "headline": "accuracy",
        "split": "holdout",
        "rows": 5000,
        "confidence": 0.95,
        "layers": 6,
        "strategies": ["top", "bottom"],
        "drop": [1, 2],
        "seeds": [0, 1, 2],
        "halving": True,
        "stages": [],
        "links": {},
        "teacher": {"score": {"value": 0.94, "low": 0.93, "high": 0.95}, **sizes},
        "cells": cells,
        "similarity": [],
        "made": account(),
        "answer": [
            {"points": 1, "holds": {"drop": 1}, "mean": {"drop": 1}, "alone": []},
            {"points": 3, "holds": {"drop": 1}, "mean": {"drop": 2}, "alone": []},
            {"points": 0.5, "holds": None, "mean": None, "alone": []},
        ],
    } | changes


HELD_BACK: dict[str, Any] = {
    "rows": {"train": 750, "validation": 872, "holdout": 50},
    "purged": {
        "rows": 200,
        "of": 1000,
        "way": "text",
        "by": {"validation": 0, "holdout": 200},
        "words_before": 9.4,
        "words_left": 8.5,
        "short": {},
    },
    "leaked": {"training rows": {"validation": 0, "holdout": 0}, "general text": {"validation": 3, "holdout": 1}},
}
"""What a run knows of its held-back rows."""
