"""One run's results file as a short table for quoting on another page: each model's kind, scores, share of the
teacher's score, size and speed-up.

The results page has the full content of a file; this table is generated as well, so that no quoted figure is copied by
hand.
"""

from __future__ import annotations

from tasks.report.format.markdown_table import line, table
from tasks.report.format.numbers import plural
from tasks.report.format.speeds import format_speedup
from tasks.report.results.results_file import Entry, Run
from tasks.report.results.results_page import in_order, kind_of
from tasks.report.results.score_cells import bounds, scored
from tasks.report.tables.held_back import purged_briefly
from tasks.report.tables.results import number

FIRST = ("holdout", "validation")
"""Splits displayed beside the reporting split, if the run scored them."""


def brief_table(run: Run) -> str:
    """Return a run's models as a Markdown table, the teacher first, and a line on recipe, machine and purge."""
    splits = [run.split, *(split for split in FIRST if split != run.split and split in run.models[0].scores)]
    names = [f"{run.headline}, {run.rows[split]:,} {split} rows" for split in splits]
    lines = table(["model", "kind", *names, "of the teacher", "parameters", "speed-up"])
    lines += [line(cells(run, entry, splits)) for _, entry, _ in in_order([run])]
    made = run.made
    how = f"{made.date}, {made.hardware.cpu}, {plural(made.hardware.cores, 'core')}, {made.hardware.gpu or 'no GPU'}"
    divided = purged_briefly(run.purged)
    return "\n".join([*lines, "", f"`{run.recipe}` with the teacher `{made.teacher}`: {how}; {divided}."])


def cells(run: Run, entry: Entry, splits: list[str]) -> list[str]:
    """Return one model's row; *of the teacher* is the share on the reporting split."""
    retained = entry.retained.get(run.split)
    scores = [entry.scores[split].get(run.headline) for split in splits]
    teacher = entry.role == "teacher"
    return [
        f"`{entry.name}`",
        kind_of(entry),
        *("" if score is None else scored(score) for score in scores),
        "" if teacher or retained is None else number(retained.value, ".1%") + bounds(retained, ".1%"),
        number(entry.parameters, ".1f", 1e-6, " M"),
        "" if teacher else format_speedup(entry),
    ]
