"""Runs side by side: what differs in their recipes, the figures of their models, and their costs, as plain tables for
the terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tasks.report.format.durations import duration
from tasks.report.format.numbers import DASH, bounds, figure, megabytes, percent
from tasks.report.format.speeds import format_latency
from tasks.report.tables.ledger import HEADINGS, TIMES, format_figure, in_digits, part_of
from tasks.results.record import Ledger
from tasks.results.row import Cost, ResultRow
from tasks.results.run import RunResult


@dataclass(frozen=True)
class ComparedRun:
    """One run: the start of its id, its date, its recipe's knobs with flat names, and its result."""

    run: str
    started: str
    knobs: Mapping[str, str]
    result: RunResult


@dataclass(frozen=True)
class ComparisonTable:
    """One table of a comparison: a title, and a row for each item with a cell for each run."""

    title: str
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    note: str = ""


def comparisons(runs: Sequence[ComparedRun]) -> list[ComparisonTable]:
    """Return the tables of a comparison; a value that a run does not have is a dash."""
    return [identity_table(runs), knob_table(runs), *model_tables(runs), cost_table(runs)]


def identity_table(runs: Sequence[ComparedRun]) -> ComparisonTable:
    """Return the identity of the runs: recipe, task, rows, teacher, commit and outcome."""
    asked: dict[str, Callable[[ComparedRun], object]] = {
        "recipe": lambda one: one.result.recipe,
        "started": lambda one: one.started,
        "task": lambda one: one.result.task,
        "teacher": lambda one: one.result.made.teacher if one.result.made else None,
        "rows": lambda one: ", ".join(f"{count:,} {split}" for split, count in sorted(one.result.rows.items())),
        "score": lambda one: f"{one.result.headline} on {one.result.split}",
        "commit": lambda one: str(one.result.made.commit or "")[:12] if one.result.made else None,
        "stages": lambda one: f"{len(one.result.stages)}, {cached_stages(one.result)} cached",
        "champion": lambda one: champion_text(one.result),
    }
    return ComparisonTable(
        "Runs", tuple((name, tuple(str(ask(one) or DASH) for one in runs)) for name, ask in asked.items())
    )


def cached_stages(result: RunResult) -> int:
    """Return the number of cached stages."""
    return sum(stage.cache == "hit" for stage in result.stages)


def champion_text(result: RunResult) -> str:
    """Return the champion after a run."""
    found = result.promotion.champion if result.promotion else None
    return f"{found.candidate}, version {found.version}" if found else ""


def knob_table(runs: Sequence[ComparedRun]) -> ComparisonTable:
    """Return the knobs whose values differ, as the recipes state them."""
    names = dict.fromkeys(name for one in runs for name in one.knobs)
    rows = [(name, tuple(one.knobs.get(name, DASH) for one in runs)) for name in names]
    differ = tuple(row for row in rows if len(set(row[1])) > 1)
    note = f"{len(rows) - len(differ)} stated knobs are equal. A dash: the recipe does not state the knob."
    return ComparisonTable("Knobs that differ", differ, note)


def model_tables(runs: Sequence[ComparedRun]) -> list[ComparisonTable]:
    """Return a table for each figure, with a row for each model."""
    names = dict.fromkeys(model.name for one in runs for model in one.result.models)
    figures: dict[str, Callable[[ResultRow, RunResult], str]] = {
        "Score, with its interval": lambda model, result: score_text(model, result.split),
        "Share of the teacher's score": lambda model, result: percent(model.share(result.split).value),
        "Weights, MB": lambda model, result: megabytes(model.bytes),
        "Latency, ms": lambda model, result: format_latency(model),
        "Gate": lambda model, result: model.gate or DASH,
    }
    rows = [{model.name: model for model in one.result.models} for one in runs]

    def cells(name: str, show: Callable[[ResultRow, RunResult], str]) -> tuple[str, ...]:
        """Return the figure of one model in each run; a dash where the run has no such model."""
        return tuple(show(own[name], one.result) if name in own else DASH for own, one in zip(rows, runs, strict=True))

    return [
        ComparisonTable(
            title,
            tuple((name, cells(name, show)) for name in names),
            OTHER_ROWS if title.startswith("Score") and len({scored_on(one.result) for one in runs}) > 1 else "",
        )
        for title, show in figures.items()
    ]


OTHER_ROWS = "These runs were scored by other metrics or on other rows, so their scores are not comparable."


def scored_on(result: RunResult) -> tuple[str, str, str, int | None]:
    """Return on what a run was scored: task, metric, split and number of rows."""
    return result.task, result.headline, result.split, result.rows.get(result.split)


def score_text(model: ResultRow, split: str) -> str:
    """Return a score and its interval."""
    found = model.score(split)
    return f"{figure(found.value)} {bounds(found)}".rstrip()


def cost_table(runs: Sequence[ComparedRun]) -> ComparisonTable:
    """Return what the runs spent, and what their caches saved; ~ is an estimate, ? is unknown."""
    parts: dict[str, Callable[[Ledger], Cost]] = {
        "spent": lambda ledger: ledger.total,
        "saved by the cache": lambda ledger: ledger.saved,
    }
    rows = [
        (f"{words}, {heading}", tuple(cost_text(one.result.ledger, part, name) for one in runs))
        for words, part in parts.items()
        for name, heading in HEADINGS.items()
    ]
    known = tuple(row for row in rows if set(row[1]) - SAYS_NOTHING)
    return ComparisonTable("Costs", known, "~ is an estimate, ? is unknown, ≥ is the sum of the known parts.")


SAYS_NOTHING = frozenset({"?", DASH, "0", duration(0)})
"""Costs that say nothing: a row of them is left out."""


def cost_text(ledger: Ledger | None, part: Callable[[Ledger], Cost], name: str) -> str:
    """Return one figure of a ledger; a dash without a ledger."""
    return format_figure(part_of(part(ledger), name), TIMES.get(name, in_digits)) if ledger else DASH
