"""The sizes of models of which some have zeros, or weights of few bits, and the accuracies of pretrained ones: in the
terminal, on the page, and in the run's text.

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
PRETRAINING_TITLE = (
    "Accuracy on documents held back from pretraining: predicted words (the most frequent one is found "
    "without any text around it), whether two segments are swapped, and whether they are of two documents; chance is "
    "50 % of the last two"
)
FREQUENT = "most_frequent_word"
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


def pretraining_of(models: Sequence[ResultRow]) -> SizeTable | None:
    """Return the table of accuracies on documents that were held back from pretraining; None if no candidate was
    pretrained."""
    if not any(model.pretraining for model in models):
        return None
    known = any(FREQUENT in model.pretraining for model in models)  # runs of before 2026-12 do not
    frequent = {FREQUENT: "most frequent word"} if known else {}
    heads = {"words": "words", **frequent, "sop": "swapped", "nsp": "two documents"}
    rows = [
        (
            model.name,
            number(model.parameters, ".2f", 1e-6, " M"),
            *(number(model.pretraining.get(name), ".1%") for name in heads),
        )
        for model in models
        if model.pretraining
    ]
    return SizeTable(PRETRAINING_TITLE, ("model", "parameters", *heads.values()), rows)


def size_tables(models: Sequence[ResultRow]) -> list[Table]:
    """Return the tables that there are, for rich."""
    return [rich_table(found) for found in (sizes_of(models), pretraining_of(models)) if found is not None]


def rich_table(found: SizeTable) -> Table:
    """Return a table for rich."""
    from rich import box
    from rich.table import Table

    table = Table(title=found.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(found.heads):
        table.add_column(name, justify="right" if place else "left", overflow="fold" if not place else "ellipsis")
    for row in found.rows:
        table.add_row(*row)
    return table


def size_markdown(models: Sequence[ResultRow]) -> list[str]:
    """Return the tables as lines of Markdown, each with a heading; empty if there are none."""
    made = [table_markdown(found) for found in (sizes_of(models), pretraining_of(models)) if found is not None]
    return [line for lines in made for line in lines]


def table_markdown(found: SizeTable) -> list[str]:
    """Return a table as lines of Markdown, with a heading."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in cells) for cells in (found.heads, *found.rows)]
    rule = "|---|" + "---:|" * (len(found.heads) - 1)
    return ["", f"{found.title}.", "", f"| {lines[0]} |", rule, *(f"| {one} |" for one in lines[1:])]


def size_sections(result: RunResult) -> list[dict[str, object]]:
    """Return the parts of the page's tables."""
    tables = {"Sizes": sizes_of(result.models), "Pretraining": pretraining_of(result.models)}
    return [
        {"name": name, "title": found.title, "heads": found.heads, "rows": found.rows}
        for name, found in tables.items()
        if found is not None
    ]
