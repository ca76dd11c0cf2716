"""The answer of a search over recipes: the ways to train one shape that were tried, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.report.format.numbers import plural
from tasks.report.tables.search import SearchSection
from tasks.results.trials import TrialsResult, TriedRecipe

if TYPE_CHECKING:
    from rich.table import Table

TRIAL_HEADS = ("way", "start", "method", "rate", "by round", "seconds", "state")


def trial_cells(trial: TriedRecipe) -> list[str]:
    """Return the row of one way."""
    scores = " → ".join("—" if score is None else f"{score:.3f}" for score in trial.scores)
    seconds = f"{float(trial.seconds):.1f}" if trial.scores else "—"
    rate = f"{float(trial.learning_rate):g}"
    return [trial.name, trial.start, trial.method, rate, scores or "—", seconds, trial.state]


def trials_lines(result: TrialsResult) -> list[str]:
    """Return sentences on a search over recipes: its minutes, its rounds, and how far to trust its answer."""
    steps = ", then ".join(f"{count:,}" for count in result.steps)
    lines = [
        f"{plural(len(result.trials), 'way')} to train the shape, tried in rounds of {steps} steps; {result.spent:g} "
        f"of {result.minutes:g} minutes of training are spent. Half of the steps are on inner layers where a method "
        f"names them."
    ]
    if result.tau is not None:
        lines.append(
            f"The last round and the whole trainings of the candidates agree with tau {result.tau:.2f} (1: one order)."
        )
    return [*lines, *(f"Note: {note}." for note in result.notes)]


def trials_section(result: TrialsResult | None) -> SearchSection | None:
    """Return the section of a page; None for a run that was no search over recipes."""
    if result is None:
        return None
    return SearchSection(trials_lines(result), TRIAL_HEADS, [trial_cells(trial) for trial in result.trials])


def trials_table(trials: Sequence[TriedRecipe]) -> Table:
    """Return the table of ways for rich."""
    from rich import box
    from rich.table import Table

    table = Table(title="ways to train the shape, the best first", title_justify="left", box=box.SIMPLE_HEAD)
    for number, head in enumerate(TRIAL_HEADS):
        table.add_column(head, justify="right" if number in (3, 5) else "left", no_wrap=number == 0)
    for trial in trials:
        table.add_row(*trial_cells(trial), style="bold" if trial.state == "candidate" else None)
    return table
