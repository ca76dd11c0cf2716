"""The console output of a run: stage n of N, a progress bar with time left, loss and examples per second; at the end
the results table and the next commands."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from tasks.report.format.durations import duration
from tasks.results.record import Ledger, Reproduction, StagePlan

if TYPE_CHECKING:
    from tasks.ports.tracking.history import PastRun
    from tasks.report.comparison import ComparedRun
    from tasks.results.run import RunResult
    from tasks.results.search import SearchResult
    from tasks.results.sweep import SweepResult
    from tasks.results.trials import TrialsResult

QUIET = 15.0  # seconds between two lines of progress when the output is no terminal


class Watcher:
    """Displays progress bars on a terminal and plain lines elsewhere; ``expected`` is the run's number of stages."""

    def __init__(self, console: Console, expected: int) -> None:
        self.console, self.expected, self.ended = console, expected, 0
        self.bars: dict[int, Any] = {}
        self.spoke: dict[int, float] = {}
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
        )
        self.progress_view = Progress(*columns, console=console, transient=True)

    def __enter__(self) -> Watcher:
        if self.console.is_terminal:
            self.progress_view.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            self.progress_view.stop()

    def note(self, words: str) -> None:
        """Print a message about the run as a whole."""
        self.console.print(words, highlight=False, markup=False, soft_wrap=True)

    def stage(self, record: Any) -> None:
        """Display a stage's new state."""
        if record.state == "running" and self.console.is_terminal and record.number not in self.bars:
            self.bars[record.number] = self.progress_view.add_task(record.display_name, total=None, unit="", figures="")
        if record.state in ("waiting", "running"):
            return
        self.ended += 1
        if record.number in self.bars:
            self.progress_view.remove_task(self.bars.pop(record.number))
        # a plan cannot foresee which dropped models are as large as a baseline
        self.expected = max(self.ended, self.expected)
        self.console.print(
            f"[{self.ended}/{self.expected}] {record.display_name}: {SHOWN[record.state]} ({record.seconds:.1f} s)",
            highlight=False,
            markup=False,
        )

    def progress(self, record: Any, done: int, total: int, unit: str, figures: Mapping[str, float]) -> None:
        """Update a stage's progress bar; without a terminal, print a line every ``QUIET`` seconds."""
        shown = ", ".join(f"{name.replace('_per_s', '/s')} {value:.4g}" for name, value in figures.items())
        if record.number in self.bars:
            self.progress_view.update(self.bars[record.number], completed=done, total=total, unit=unit, figures=shown)
        elif not self.console.is_terminal and time.monotonic() - self.spoke.get(record.number, 0.0) > QUIET:
            self.spoke[record.number] = time.monotonic()
            self.console.print(
                f"      {record.display_name}: {done:,} of {total:,} {unit} {shown}", highlight=False, markup=False
            )

    def log(self, record: Any, message: str) -> None:
        """Print a message of a stage."""
        self.console.print(f"      {record.display_name}: {message}", highlight=False, markup=False, style="dim")


SHOWN = {
    "cached": "cached",
    "completed": "done",
    "failed": "failed",
    "stopped": "stopped",
    "refused": "not started or stopped: the budget is spent",
}


def show_tables(console: Console, result: RunResult) -> None:
    """Print the tables of a finished run, and the sentences below them."""
    from tasks.report.format.baseline_comparison import baseline_lines
    from tasks.report.tables.judging_sets import judging_table, printed_comparisons
    from tasks.report.tables.results import notes, results_table
    from tasks.report.tables.sizes import size_tables
    from tasks.report.tables.steps import printed_steps
    from tasks.report.tables.teacher_layers import layer_lines, read_lines

    console.print()
    console.print(results_table(result.models, split=result.split))
    elsewhere = judging_table(result.models, result.split)
    if elsewhere is not None:
        console.print(elsewhere)
    for table in size_tables(result.models):
        console.print(table)
    ways, said = printed_steps(result.models, result.split)
    for way in ways:
        console.print(way)
    below = said + baseline_lines(result.models, result.split) + printed_comparisons(result.models)
    below += notes(result.models)
    for line in [*below, *layer_lines(result.teacher_layers), *read_lines(result.models)]:
        console.print(line, highlight=False, markup=False)


def show_results(console: Console, result: RunResult) -> None:
    """Print the table of a finished run, the gate's reasons, and the next commands."""
    from flows.publish.results import champion_line, counts, spent

    show_tables(console, result)
    if result.chosen_by is not None:
        show_search(console, result.chosen_by)
    for entry in result.registered:
        if entry.decision == "refused":
            console.print(
                f"{entry.verdict}: {entry.candidate}: {'; '.join(entry.reasons)}",
                highlight=False,
                markup=False,
            )
        elif entry.outcome != "champion":
            console.print(f"not champion: {entry.candidate}: {entry.why}", highlight=False, markup=False)
    console.print(f"\n{counts(result)}; {champion_line(result)}.", highlight=False, markup=False)
    for line in spent(result.ledger):
        console.print(f"{line[0].upper()}{line[1:]}; see limbeck ledger.", highlight=False, markup=False)
    show_next_commands(console, result)


def show_search(console: Console, search: SearchResult | TrialsResult) -> None:
    """Print what a search tried, and how far to trust its answer."""
    from tasks.report.tables.trials import section_of_search

    section = section_of_search(search)
    if section.rows:
        console.print(section.table())
    for line in section.lines:
        console.print(line, highlight=False, markup=False)


def show_next_commands(console: Console, result: RunResult) -> None:
    """Print the commands that use the models of a finished run."""
    from tasks.report.page.headline import quoted

    console.print("\nNext:")
    if result.promotion is not None and result.promotion.champion is not None:
        name = result.registered[0].name
        console.print(
            f"  limbeck pull {name}@champion my-model     # one Hugging Face folder",
            highlight=False,
            markup=False,
        )
        console.print(
            f"  limbeck show {name}                       # aliases, figures and history of decisions",
            highlight=False,
            markup=False,
        )
        texts = quoted(result.texts or "texts.csv")
        console.print(f"  limbeck predict my-model {texts}", highlight=False, markup=False, soft_wrap=True)
    console.print("  limbeck report --open                         # the whole run on one page", highlight=False)
    console.print(
        "  limbeck models                                # every registered version with the gate's verdict",
        highlight=False,
    )
    console.print(
        "  limbeck ui                                    # Prefect and MLflow in the browser", highlight=False
    )


def show_sweep(console: Console, result: SweepResult) -> None:
    """Print the table of a finished sweep, the answer, the change of each layer by fine-tuning, and the next
    commands."""
    from flows.publish.results import spent
    from tasks.report.tables.sweep import SIMILAR, answer_lines, notes, similarity_table, sweep_table, title

    plain = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    plain(f"\n{title(result)}")
    console.print(sweep_table(result))
    plain("\n".join([*notes(result), "", *answer_lines(result), "", SIMILAR]))
    console.print(similarity_table(result))
    hits = sum(stage["cache"] == "hit" for stage in result["stages"])
    console.print(f"{hits} of {len(result['stages'])} stages cached; nothing was registered.", highlight=False)
    for line in spent(Ledger.model_validate(result["ledger"])):
        console.print(f"{line[0].upper()}{line[1:]}; see limbeck ledger.", highlight=False, markup=False)
    console.print("\nNext:")
    console.print(
        "  limbeck report --open                         # the result, the chart and every figure on one page",
        highlight=False,
    )
    console.print(
        "  limbeck explain                               # the stages that ran, and the reasons", highlight=False
    )
    console.print(
        "  limbeck ui                                    # Prefect and MLflow in the browser: run/sweep.svg is the "
        "plot",
        highlight=False,
    )


def show_reproduction(console: Console, found: Reproduction) -> None:
    """Print the comparison of a reproduction with the first run, stage by stage."""
    from rich.table import Table

    from tasks.report.reproduction import row_of, summary

    table = Table(
        "stage",
        "first",
        "second",
        "verdict",
        "reason",
        title=f"run {found.run[:8]}: first and repeated run",
        title_justify="left",
    )
    for stage in found.stages:
        table.add_row(*row_of(stage))
    console.print()
    console.print(table)
    for line in [*found.sources, *summary(found)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def show_sweep_plan(console: Console, name: str, rows: Sequence[StagePlan]) -> None:
    """Print the planned trainings of a sweep, a line for each kind of work, and how many of them are cached."""
    from rich.table import Table

    table = Table("kind", title=f"sweep of {name}: cost", title_justify="left")
    for heading in ("stages", "cached", "would run", "about"):
        table.add_column(heading, justify="right")
    kinds: dict[str, list[StagePlan]] = {}
    for row in rows:
        kinds.setdefault(kind_of(row.stage), []).append(row)
    for kind, found in kinds.items():
        missing = [row for row in found if row.cache == "miss"]
        known = [row.seconds for row in missing if row.seconds is not None]
        table.add_row(
            kind,
            str(len(found)),
            str(len(found) - len(missing)),
            str(len(missing)),
            duration(sum(known)) if known else "",
        )
    console.print(table)
    trainings = [row for row in rows if row.stage.startswith("drop-layers")]
    missing = [row for row in trainings if row.cache == "miss"]
    console.print(
        f"{len(trainings)} trainings of dropped models: {len(trainings) - len(missing)} are cached, {len(missing)} "
        f"would run.",
        highlight=False,
    )
    if any(row.seconds is not None for row in rows if row.cache == "miss"):
        console.print(
            "About: the cost of earlier stages of the same kind, possibly with other settings, in sequence; stages "
            "may run in parallel.",
            highlight=False,
        )


def kind_of(stage: str) -> str:
    """Return the kind of work of a sweep's stage."""
    name, _, shown = stage.partition("/")
    if name != "drop-layers":
        return name
    strategy = shown.rpartition("-")[0] if " " not in shown else shown.split(" ")[0].rpartition("-")[0]
    step = " tries" if " try " in shown else " first rung" if " first rung" in shown else ""
    return f"train {strategy}{step}"


def show_comparison(console: Console, runs: Sequence[ComparedRun]) -> None:
    """Print the tables of a comparison of runs."""
    from tasks.report.comparison import comparisons

    for compared in comparisons(runs):
        table = Table("", *(one.run for one in runs), title=compared.title, title_justify="left")
        for name, cells in compared.rows:
            table.add_row(name, *cells)
        console.print(table if compared.rows else f"{compared.title}: none")
        if compared.note:
            console.print(compared.note, highlight=False, markup=False)


def runs_table(rows: Sequence[PastRun]) -> Table:
    """Return the table of past runs, each with its best candidate and that candidate's figures."""
    table = Table()
    for name in ("run", "started", "kind", "recipe", "experiment", "status", "best"):
        table.add_column(name, overflow="fold")
    for name, _ in BRIEF.values():
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        figures = [
            f"{row['figures'][name]:{form}}" if name in row["figures"] else "—" for name, (_, form) in BRIEF.items()
        ]
        table.add_row(
            row["run"][:8],
            moment(row["started"]),
            row["kind"],
            row["recipe"],
            row["experiment"],
            row["status"],
            row["best"],
            *figures,
        )
    return table


BRIEF = {"score": ("score", ".3f"), "retained_pct": ("%", ".1f"), "speedup_x": ("x", ".1f"), "size_mb": ("MB", ".1f")}
"""Columns of the best candidate's figures: score, percent of the teacher's score, speed-up, size."""


def moment(milliseconds: int) -> str:
    """Return a time as a local date with hours and minutes."""
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d %H:%M")
