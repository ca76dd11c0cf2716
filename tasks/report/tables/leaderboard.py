"""The leaderboard of a task: the candidates of all of its runs, the best score first. Scores on other rows or by other
metrics are in tables of their own, because they are not comparable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.report.format.numbers import figure
from tasks.task_types.types import ERROR_METRICS

if TYPE_CHECKING:
    from rich.table import Table

    from tasks.ports.tracking.history import LoggedCandidate

BOARD_COLUMNS = {
    "score": ("score", ".4f"),
    "retained_pct": ("% of teacher", ".1f"),
    "size_mb": ("MB", ".1f"),
    "params_m": ("params, M", ".2f"),
    "latency_ms": ("ms", ".2f"),
    "speedup_x": ("speed-up", ".1f"),
}
"""Metrics of a candidate in MLflow, with the heading and the format of their column."""
ABOUT_CANDIDATE, ABOUT_RUN = ("candidate", "role", "teacher"), ("gate", "recipe")
"""Tags with a column, before and behind the figures."""
LONGEST_WHOLE_NAME = 40
"""Characters up to which names of candidates are never broken."""
ID_DIGITS = 8
"""Characters of a digest or of a run's id in the table."""


def boards(candidates: Sequence[LoggedCandidate]) -> dict[tuple[str, str, str], list[LoggedCandidate]]:
    """Return the candidates by what they were scored on (metric, split, digest of the data), the best first; of several
    entries with one checkpoint, the newest is taken."""
    found: dict[tuple[str, str, str], dict[str, LoggedCandidate]] = {}
    for one in candidates:
        tags = one["tags"]
        board = found.setdefault((tags.get("headline", ""), tags.get("split", ""), one["data"]), {})
        board.setdefault(tags.get("checkpoint.sha256") or f"{one['run']} {tags.get('candidate')}", one)
    return {
        place: sorted(entries.values(), key=lambda one: board_order(one, less=place[0] in ERROR_METRICS))
        for place, entries in found.items()
    }


def board_order(entry: LoggedCandidate, *, less: bool) -> tuple[bool, float]:
    """Return a sort key that is smallest for the best score; candidates without a score come last."""
    score = entry["metrics"].get("score")
    return score is None, 0.0 if score is None else score if less else -score


def leaderboard_table(place: tuple[str, str, str], entries: Sequence[LoggedCandidate], limit: int) -> Table:
    """Return one board as a table for the terminal."""
    from rich import box
    from rich.table import Table

    headline, split, digest = place
    where = f" on {split}" if split else ""
    common = {name: value for name in ("teacher", "recipe") if (value := value_of_all(entries, name))}
    about = "".join(f", {name} {value}" for name, value in common.items())
    title = f"{headline}{where}, data {digest[:ID_DIGITS] or 'unknown'}{about}: "
    title += f"{min(limit, len(entries))} of {len(entries)}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    fits = max(len(one["tags"].get("candidate", "")) for one in entries[:limit]) <= LONGEST_WHOLE_NAME
    first, last = ([name for name in names if name not in common] for names in (ABOUT_CANDIDATE, ABOUT_RUN))
    table.add_column("")
    for name in first:
        table.add_column(name, overflow="fold", no_wrap=name == "candidate" and fits)
    for name, _ in BOARD_COLUMNS.values():
        table.add_column(name, justify="right", no_wrap=True)
    for name in (*last, "run"):
        table.add_column(name, overflow="fold")
    for number, one in enumerate(entries[:limit], 1):
        tags = one["tags"]
        figures = [figure(one["metrics"].get(name), form) for name, (_, form) in BOARD_COLUMNS.items()]
        known, of_run = ([tags.get(name, "") for name in names] for names in (first, last))
        table.add_row(str(number), *known, *figures, *of_run, one["run"][:ID_DIGITS])
    return table


def value_of_all(entries: Sequence[LoggedCandidate], name: str) -> str:
    """Return the value of a tag that all candidates share; empty if they differ."""
    values = {one["tags"].get(name, "") for one in entries}
    return values.pop() if len(values) == 1 else ""
