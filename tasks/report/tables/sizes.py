"""The sizes of models of which some have zeros, or weights of few bits: in the terminal, on the page, and in the run's
text.

Neither changes a file of floats by itself, so the share of parameters that are not 0, and the bits of a weight, are
columns of their own, and no sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.report.format.numbers import megabytes
from tasks.report.tables.results import DASH, number
from tasks.results.row import ResultRow
from tasks.results.run import RunResult

if TYPE_CHECKING:
    from rich.table import Table

PACKED_TITLE = "MB packed the same in a zip file; zeros alone make no model faster"
BITS_TITLE = "bits those of a weight of the matrices, which an export stores"


@dataclass(frozen=True)
class SizeTable:
    """A table of text: its title, the names of its columns, and a row for each model."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]


def sizes_of(models: Sequence[ResultRow]) -> SizeTable | None:
    """Return the table of sizes; None unless models were packed, or some were trained for few bits."""
    packed = any(model.packed_bytes is not None for model in models)
    bits = any(model.bits is not None for model in models)
    if not packed and not bits:
        return None
    heads = ("model", "parameters", *(("not 0",) if packed else ()), "MB", *(("MB packed",) if packed else ()))
    parts = ["MB is the file of the weights", *([PACKED_TITLE] if packed else []), *([BITS_TITLE] if bits else [])]
    rows = [(*sizes(model, packed=packed), *((number(model.bits, "g"),) if bits else ())) for model in models]
    return SizeTable(f"Sizes: {', '.join(parts)}", (*heads, *(("bits",) if bits else ())), rows)


def sizes(model: ResultRow, *, packed: bool) -> tuple[str, ...]:
    """Return the sizes of a model as text, those that packing measured only where models were packed."""
    small = (DASH if model.packed_bytes is None else megabytes(model.packed_bytes),) if packed else ()
    share = (number(model.nonzero_share, ".1%"),) if packed else ()
    return (model.name, number(model.parameters, ".2f", 1e-6, " M"), *share, megabytes(model.bytes), *small)


def size_table(models: Sequence[ResultRow]) -> Table | None:
    """Return the table for rich; None if there is none."""
    from rich import box
    from rich.table import Table

    found = sizes_of(models)
    if found is None:
        return None
    table = Table(title=found.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(found.heads):
        table.add_column(name, justify="right" if place else "left", overflow="fold" if not place else "ellipsis")
    for row in found.rows:
        table.add_row(*row)
    return table


def size_markdown(models: Sequence[ResultRow]) -> list[str]:
    """Return the table as lines of Markdown, with a heading; empty if there is none."""
    found = sizes_of(models)
    if found is None:
        return []
    lines = [" | ".join(cell.replace("|", "\\|") for cell in cells) for cells in (found.heads, *found.rows)]
    rule = "|---|" + "---:|" * (len(found.heads) - 1)
    return ["", f"{found.title}.", "", f"| {lines[0]} |", rule, *(f"| {one} |" for one in lines[1:])]


def size_section(result: RunResult) -> dict[str, object] | None:
    """Return the parts of the page's table; None if there is none."""
    found = sizes_of(result.models)
    return None if found is None else {"title": found.title, "heads": found.heads, "rows": found.rows}
