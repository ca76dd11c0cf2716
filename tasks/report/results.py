"""The table at the end of a run: for the terminal, and for the Prefect page. What is undefined is shown as a dash, never as a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.report.against import against_lines

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("model", "role", "score", "retained", "params", "MB", "GFLOPs", "ms", "speed-up", "gate")
DASH = "—"


def results_table(models: Sequence[Mapping[str, Any]], *, headline: str | None = None, split: str = "validation") -> Table:
    """Return the table as rich draws it: teacher first, then every candidate; it fits in 110 columns."""
    from rich import box
    from rich.table import Table

    title = f"{headline or models[0]['headline']} on {split}, ± over seeds, with its interval; latency is the median at {conditions(models[0])}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("model", overflow="fold")
    for name in COLUMNS[2:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("gate", no_wrap=True)
    for model in models:
        style = "bold" if model["gate"] == "champion" else "dim" if model["role"] == "baseline" else None
        name, role, *figures, gate = cells(model, split, headline)
        # The role is seen from the name, except where the gate has nothing to say; a column of its own would break the width.
        table.add_row(name, *figures, role if gate == DASH else gate, style=style)
    return table


def results_markdown(models: Sequence[Mapping[str, Any]], *, headline: str | None = None, split: str = "validation") -> str:
    """Return the table as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * (len(COLUMNS) - 3) + "---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(model, split, headline)) + " |" for model in models]
    lines += ["", *(f"- {line}" for line in against_lines(models, split))]
    said = f"Score: {headline or models[0]['headline']} on {split}, ± its standard deviation over seeds. Latency: median at {conditions(models[0])}."
    return "\n".join(lines).rstrip() + "\n\n" + "\n\n".join([said, *notes(models)]) + "\n"


def notes(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what stages noted about models, each note once."""
    return [f"Note: {note}." for note in sorted({model["note"] for model in models if model.get("note")})]


def cells(model: Mapping[str, Any], split: str, headline: str | None = None) -> list[str]:
    """Return one row of the table."""
    teacher = model["role"] == "teacher"
    retained, metric = (model["retained"] or {}).get(split) or {}, headline or model["headline"]
    return [
        model["name"],
        model["role"],
        with_interval(model["metrics"].get(split, {}).get(metric) or {}, deviation_of(model, split, metric)),
        DASH if teacher else number(retained.get("value"), ".1%"),
        number(model["parameters"], ".2f", 1e-6, " M"),
        number(model["bytes"], ".1f", 1e-6),
        number(model["flops"], ".2f", 1e-9),
        number(model["latency_ms"], ".2f"),
        DASH if teacher else number(model["speedup"], ".1f", 1, "x"),
        model["gate"],
    ]


def deviation_of(model: Mapping[str, Any], split: str, metric: str) -> float | None:
    """Return the standard deviation over seeds; None where there is one seed."""
    value = (model.get("deviation") or {}).get(split, {}).get(metric)
    return None if value is None else float(value)


def with_interval(score: Mapping[str, float | None], deviation: float | None = None) -> str:
    """Return a score, its deviation over seeds, and its interval."""
    low, high = score.get("low"), score.get("high")
    spread = f" ±{deviation:.3f}" if deviation is not None else ""
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return number(score.get("value"), ".3f") + spread + interval


def number(value: float | None, form: str, factor: float = 1, unit: str = "") -> str:
    """Return a figure in the units of its column, or a dash."""
    return DASH if value is None else f"{value * factor:{form}}{unit}"


def conditions(model: Mapping[str, Any]) -> str:
    """Say under which conditions latency was measured."""
    at = model.get("measured_at")
    if not at:
        return "unstated conditions"
    return f"batch {at['batch']}, length {at['length']}, {at['threads']} thread{'s' if at['threads'] > 1 else ''}, {at['engine']}"
