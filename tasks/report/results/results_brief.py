"""One run's file as a short table, for a page that quotes it: who, how good on which rows, how much of the teacher, how
big, how fast.

The results page has all that a file says; whoever quotes a run has this printed, so that no figure is copied by hand.
"""

from __future__ import annotations

from tasks.report.results.markdown_table import line, table
from tasks.report.results.results_file import Entry, Run
from tasks.report.results.results_page import bounds, in_order, scored, what
from tasks.report.tables.held_back import purged_briefly
from tasks.report.tables.results import number

FIRST = ("holdout", "validation")
"""Splits that are shown beside the one that decides, where a run scored them."""


def brief_table(run: Run) -> str:
    """Return a run's models as Markdown, the teacher first, and a line that says how they were made."""
    splits = [run.split, *(split for split in FIRST if split != run.split and split in run.models[0].scores)]
    names = [f"{run.headline}, {run.rows[split]:,} {split} rows" for split in splits]
    lines = table(["model", "what", *names, "of the teacher", "parameters", "speed-up"])
    lines += [line(cells(run, entry, splits)) for _, entry, _ in in_order([run])]
    made = run.made
    how = f"{made.date}, {made.hardware.cpu}, {made.hardware.cores} cores, {made.hardware.gpu or 'no GPU'}"
    divided = purged_briefly(run.purged.model_dump() if run.purged else None)
    return "\n".join([*lines, "", f"`{run.recipe}` with the teacher `{made.teacher}`: {how}; {divided}."])


def cells(run: Run, entry: Entry, splits: list[str]) -> list[str]:
    """Return one model's row; *of the teacher* is read on the split that decides."""
    retained = entry.retained.get(run.split)
    scores = [entry.scores[split].get(run.headline) for split in splits]
    teacher = entry.role == "teacher"
    return [
        f"`{entry.name}`",
        what(entry),
        *("" if score is None else scored(score) for score in scores),
        "" if teacher or retained is None else number(retained.value, ".1%") + bounds(retained, ".1%"),
        number(entry.parameters, ".1f", 1e-6, " M"),
        "" if teacher else number(entry.speedup, ".1f", 1, "x"),
    ]
