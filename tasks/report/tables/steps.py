"""The steps of a chain of candidates as a table: the score, the size and the latency after each step, and the change by
each; for the terminal and for Prefect's page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.report.format.chains import Chain, ChainStep, chains, percent_change, points, whole_way
from tasks.report.format.numbers import figure
from tasks.report.format.speeds import UNSTEADY, milliseconds
from tasks.report.tables.results import with_interval
from tasks.results.row import ResultRow

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("step", "made by", "score", "change", "MB", "change", "ms", "change")
MOST_CHAINS = 3
"""Chains that are printed; the page has all of them."""
NO_INTERVAL = "The change of a score has no interval of its own: those of the two scores are beside it."


def steps_table(chain: Chain, split: str) -> Table:
    """Return the table of a chain for rich; it fits in 110 columns."""
    from rich import box
    from rich.table import Table

    title = f"step by step to {chain.last.name}; {chain.last.headline} on {split}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in COLUMNS[:2]:
        table.add_column(name, overflow="fold")
    for name in COLUMNS[2:]:
        table.add_column(name, justify="right", no_wrap=True)
    for step in chain.steps:
        table.add_row(*cells(step, split), style="dim" if step.row.of else None)
    return table


def cells(step: ChainStep, split: str) -> list[str]:
    """Return one row of the table; the teacher has no changes."""
    row = step.row
    return [
        row.name,
        step.making,
        with_interval(row.score(split)),
        points(step.score_change(split), row.headline),
        figure(row.bytes, ".1f", 1e-6),
        percent_change(step.size_change),
        milliseconds(row.latency_ms),
        UNSTEADY if step.before is not None and step.is_unsteady else percent_change(step.latency_change),
    ]


def printed_steps(models: Sequence[ResultRow], split: str) -> tuple[list[Table], list[str]]:
    """Return the tables of a run's chains and the sentences below them; none without a chain of two steps."""
    found = chains(models)
    shown = found[:MOST_CHAINS]
    more = [f"{len(found) - len(shown)} more chains are on the page of the run."] if len(found) > len(shown) else []
    said = [*(whole_way(chain, split) for chain in shown), *([NO_INTERVAL] if shown else []), *more]
    return [steps_table(chain, split) for chain in shown], said


def steps_markdown(models: Sequence[ResultRow], split: str) -> list[str]:
    """Return the tables of all chains as lines of Markdown."""
    lines: list[str] = []
    for chain in chains(models):
        lines += ["", f"Step by step to {chain.last.name}:", ""]
        lines += ["| " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
        lines += [
            "| " + " | ".join(one.replace("|", "\\|") for one in cells(step, split)) + " |" for step in chain.steps
        ]
        lines += ["", whole_way(chain, split)]
    return [*lines, "", NO_INTERVAL, ""] if lines else []
