"""The table at the end of a run: for the terminal, and for the Prefect page. Undefined figures are displayed as a dash,
never as a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tasks.ports.markdown import escaped
from tasks.report.format.baseline_comparison import Bounded, baseline_lines
from tasks.report.format.means import VARIED
from tasks.report.format.numbers import megabytes, share_in_words
from tasks.report.format.one_class import one_class_lines
from tasks.report.format.speeds import format_latency, format_speedup, speed_lines
from tasks.results.roles import role_of
from tasks.results.row import ResultRow

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("model", "role", "score", "retained", "params", "MB", "GFLOPs", "ms", "speed-up", "gate")
DASH = "—"
MEANS = f"In brackets: mean ± standard deviation over seeds, to compare methods; {VARIED}."


def results_table(models: Sequence[ResultRow], *, headline: str | None = None, split: str = "validation") -> Table:
    """Return the table for rich: teacher first, then every candidate; it fits in 110 columns."""
    from rich import box
    from rich.table import Table

    share = share_in_words(headline or models[0].headline)
    title = (
        f"{headline or models[0].headline} on {split} with its interval (mean ± over seeds); "
        f"{f'retained: {share}; ' if share else ''}ms: median ± its interval at {conditions(models[0])}"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("model", overflow="fold")
    for name in COLUMNS[2:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("gate", no_wrap=True)
    for model in models:
        style = "bold" if model.gate == "champion" else None if role_of(model.role).judged else "dim"
        name, role, *figures, gate = cells(model, split, headline)
        # The name usually shows the role; without a gate outcome the role is displayed in its place, because a column
        # of its own would make the table too wide.
        table.add_row(name, *figures, role if gate == DASH else gate, style=style)
    return table


def results_markdown(models: Sequence[ResultRow], *, headline: str | None = None, split: str = "validation") -> str:
    """Return the table as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * (len(COLUMNS) - 3) + "---|"]
    lines += [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in cells(model, split, headline)) + " |" for model in models
    ]
    lines += ["", *(f"- {line}" for line in baseline_lines(models, split))]
    said = (
        f"Score: {headline or models[0].headline} on {split}, of the registered model. ms: median ± its "
        f"interval at {conditions(models[0])}."
    )
    share = share_in_words(headline or models[0].headline)
    said += f" Retained: {share}." if share else ""
    varied = [MEANS] if any(model.spread(split, headline) is not None for model in models) else []
    return (
        "\n".join(lines).rstrip()
        + "\n\n"
        + "\n\n".join([said, *varied, *notes(models, lambda note: escaped(note, 1000))])
        + "\n"
    )


def notes(models: Sequence[ResultRow], written: Callable[[str], str] = str) -> list[str]:
    """Return the notes of stages about models, each once and ``written`` as its place needs it, and lines on models
    that give all rows one class, or whose speed is unsteady or was timed in another way than the teacher's."""
    noted = [f"Note: {written(note)}." for note in sorted({model.note for model in models if model.note})]
    return [*noted, *one_class_lines(models), *speed_lines(models)]


def cells(model: ResultRow, split: str, headline: str | None = None) -> list[str]:
    """Return one row of the table."""
    teacher = model.role == "teacher"
    return [
        model.name,
        model.role,
        with_interval(model.score(split, headline)) + over_seeds(model, split, headline),
        DASH if teacher else number(model.share(split).value, ".1%"),
        number(model.parameters, ".2f", 1e-6, " M"),
        megabytes(model.bytes),
        number(model.flops, ".2f", 1e-9),
        format_latency(model),
        format_speedup(model),
        model.gate or DASH,
    ]


def over_seeds(model: ResultRow, split: str, metric: str | None = None) -> str:
    """Return the mean over seeds and its standard deviation; empty for one seed."""
    deviation, mean = model.spread(split, metric), model.mean(split, metric)
    value = mean.value if mean else None
    return "" if deviation is None else f" ({'' if value is None else f'{value:.3f} '}±{deviation:.3f})"


def with_interval(score: Bounded) -> str:
    """Return a score and its interval."""
    low, high = score.low, score.high
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return number(score.value, ".3f") + interval


def number(value: float | None, form: str, factor: float = 1, unit: str = "") -> str:
    """Return a figure in the unit of its column, or a dash."""
    return DASH if value is None else f"{value * factor:{form}}{unit}"


def conditions(model: ResultRow) -> str:
    """Return the conditions of the latency measurement, in words."""
    at = model.measured_at
    if not at:
        return "unstated conditions"
    return (
        f"batch {at.batch}, length {at.length}, {at.threads} thread{'s' if (at.threads or 1) > 1 else ''}, {at.engine}"
    )
