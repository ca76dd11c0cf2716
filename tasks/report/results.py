"""The table at the end of a run: for the terminal, and for the Prefect page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("model", "role", "score", "retained", "params", "MB", "GFLOPs", "ms", "speed-up", "gate")


def results_table(models: Sequence[Mapping[str, Any]], *, split: str = "validation") -> Table:
    """Return the table as rich draws it: teacher first, then every candidate."""
    from rich.table import Table

    headline = models[0]["headline"]
    title = f"{headline} on {split}, with its interval; latency is the median at {conditions(models[0])}"
    table = Table(*COLUMNS[:2], title=title, title_justify="left")
    for name in COLUMNS[2:]:
        table.add_column(name, justify="right", no_wrap=True)
    for model in models:
        style = "bold" if model["gate"] == "champion" else "dim" if model["role"] == "baseline" else None
        table.add_row(*cells(model, split), style=style)
    return table


def results_markdown(models: Sequence[Mapping[str, Any]], *, split: str = "validation") -> str:
    """Return the table as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(cells(model, split)) + " |" for model in models]
    return "\n".join(lines) + f"\n\nScore: {models[0]['headline']} on {split}. Latency: median at {conditions(models[0])}.\n"


def cells(model: Mapping[str, Any], split: str) -> list[str]:
    """Return one row of the table."""
    score = model["metrics"][split][model["headline"]]
    retained = (model["retained"] or {}).get(split) or {}
    share = f"{retained['value']:.1%}" if retained.get("value") is not None and model["role"] != "teacher" else "—"
    return [
        model["name"],
        model["role"],
        f"{score['value']:.3f} [{score['low']:.3f}, {score['high']:.3f}]",
        share,
        f"{model['parameters'] / 1e6:.2f} M",
        f"{model['bytes'] / 1e6:.1f}",
        f"{model['flops'] / 1e9:.2f}",
        f"{model['latency_ms']:.2f}",
        "—" if model["role"] == "teacher" else f"{model['speedup']:.1f}x",
        model["gate"],
    ]


def conditions(model: Mapping[str, Any]) -> str:
    """Say under which conditions latency was measured."""
    at = model["measured_at"]
    return f"batch {at['batch']}, length {at['length']}, {at['threads']} thread{'s' if at['threads'] > 1 else ''}, {at['engine']}"
