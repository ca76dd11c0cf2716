"""The sizes of models of which some have zeros, in four columns: in the terminal, on the page, and in the run's text.

Zeros change no file by themselves, so the share of parameters that are not 0 is a column of its own, and no size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.report.format.numbers import megabytes
from tasks.report.tables.results import DASH, number
from tasks.results.row import ResultRow
from tasks.results.run import RunResult

if TYPE_CHECKING:
    from rich.table import Table

SIZE_COLUMNS = ("model", "parameters", "not 0", "MB", "MB packed")
TITLE = "Sizes: MB is the file of the weights, MB packed the same in a zip file; zeros alone make no model faster"


def size_rows(models: Sequence[ResultRow]) -> list[tuple[str, ...]]:
    """Return a row of text for every model; none unless they were packed."""
    if not any(model.packed_bytes is not None for model in models):
        return []
    return [
        (
            model.name,
            number(model.parameters, ".2f", 1e-6, " M"),
            number(model.nonzero_share, ".1%"),
            megabytes(model.bytes),
            DASH if model.packed_bytes is None else megabytes(model.packed_bytes),
        )
        for model in models
    ]


def size_table(models: Sequence[ResultRow]) -> Table | None:
    """Return the table for rich; None unless models were packed."""
    from rich import box
    from rich.table import Table

    rows = size_rows(models)
    if not rows:
        return None
    table = Table(title=TITLE, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(SIZE_COLUMNS):
        table.add_column(name, justify="right" if place else "left", overflow="fold" if not place else "ellipsis")
    for row in rows:
        table.add_row(*row)
    return table


def size_markdown(models: Sequence[ResultRow]) -> list[str]:
    """Return the table as lines of Markdown, with a heading; empty unless models were packed."""
    rows = size_rows(models)
    lines = [" | ".join(cell.replace("|", "\\|") for cell in cells) for cells in (SIZE_COLUMNS, *rows)]
    rule = "|---|" + "---:|" * (len(SIZE_COLUMNS) - 1)
    return ["", f"{TITLE}.", "", f"| {lines[0]} |", rule, *(f"| {one} |" for one in lines[1:])] if rows else []


def size_section(result: RunResult) -> dict[str, object] | None:
    """Return the parts of the page's table; None unless models were packed."""
    rows = size_rows(result.models)
    return {"title": TITLE, "heads": SIZE_COLUMNS, "rows": rows} if rows else None
