"""Lines on held-back rows: the number of training rows that were removed for them, and the number of them that still
overlap with training data.

The same lines are displayed in the log of a run, under its plan, on its page and on the cards of its models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tasks.report.format.numbers import plural
from tasks.report.tables.judging_sets import set_lines
from tasks.results.facts import HeldBackFacts, Purge
from tasks.scoring.quality.verdicts import FEWEST_GROUPS, are_few

BEFORE = "computed before splits were purged, so evaluation rows overlap with training rows"
WAYS = {
    "text": "their text overlaps with that of held-out rows",
    "group": "their group, or their whole text, is held out",
    "overlap": "their text overlaps with that of held-out rows, which were drawn as whole groups of overlapping rows",
}
NOT_PURGED = "Train was not purged (data.purge: false): rows that overlap with held-out rows are used in training."


def held_back_lines(found: HeldBackFacts | None) -> list[str]:
    """Return lines on the rows removed from train and on remaining overlaps; empty if they are unknown."""
    if found is None or not found.is_known:
        return [] if found is None else uncompared_lines(found)
    own = [*purge_lines(found.rows, found.purged), *left_out_lines(found.left_out), *leak_lines(found)]
    own += [*part_lines(found), *choice_lines(found)]
    return [*own, *group_lines(found), *set_lines(found.judging), *uncompared_lines(found)]


def purge_lines(rows: Mapping[str, int], purged: Purge | None) -> list[str]:
    """Return lines on the rows removed from train, by split, and on the remaining rows; empty for rows that were split
    before the purge existed."""
    if purged is None:
        return []
    left = f"{rows['train']:,} training rows of {purged.words_left:.1f} words on average remain"
    lines = [f"{NOT_PURGED} {left}."]
    if purged.way != "none":
        by = listed({split: count for split, count in purged.by.items() if count})
        lines = [
            f"{purged.rows:,} of {purged.of:,} training rows ({purged.rows / purged.of:.1%}) were "
            f"removed, because {WAYS[purged.way]}"
            f"{f' ({by})' if by else ''}; {left} ({purged.words_before:.1f} before)."
        ]
    return lines + [
        f"{wanted:,} rows were requested for {split}, and only {rows.get(split, 0):,} are not contained in another row."
        for split, wanted in purged.short.items()
    ]


def leak_lines(found: HeldBackFacts) -> list[str]:
    """Return a line for each kind of training data with which held-back rows overlap."""
    rows = found.rows
    return [
        f"Held-out rows that overlap with the {where}: "
        f"{', '.join(f'{count:,} of {rows[split]:,} {split}' for split, count in splits.items())}."
        for where, splits in found.leaked.items()
    ]


def left_out_lines(left_out: Mapping[str, int]) -> list[str]:
    """Return a line for each kind of training data of which some is not learned from."""
    return [
        f"Left out of the {where} for overlaps with held-out rows: {plural(count, 'text')}."
        for where, count in left_out.items()
        if count
    ]


def uncompared_lines(found: HeldBackFacts) -> list[str]:
    """Return a line for everything of which a plan does not count the overlaps."""
    return [
        f"Overlaps of the {what} are counted by a run, and not before: {why}." for what, why in found.uncompared.items()
    ]


def part_lines(found: HeldBackFacts) -> list[str]:
    """Return a line on held-out rows whose texts overlap with those of training rows in other groups; empty if none
    does."""
    parts = [f"{count:,} of {found.rows[split]:,} {split}" for split, count in found.leaked_in_part.items() if count]
    if not parts:
        return []
    return [
        f"Groups divide the rows, so texts in common are no leak if no whole one stands in another group: "
        f"{', '.join(parts)} share a text or eight words with training rows, or contain one; scores there may be a "
        f"little too good."
    ]


def choice_lines(found: HeldBackFacts) -> list[str]:
    """Return a line on the rows that report and overlap with those that choose; empty if none does."""
    if not any(found.leaked_by_choice.values()):
        return []
    parts = (f"{count:,} of {found.rows[split]:,} {split}" for split, count in found.leaked_by_choice.items())
    return [
        f"Rows that overlap with the selection rows, by which checkpoints and seeds are chosen: {', '.join(parts)}; "
        f"scores there may be a little too good."
    ]


def group_lines(found: HeldBackFacts) -> list[str]:
    """Return a line for each split that judges and has rows of few groups."""
    return [
        f"The {found.rows[split]:,} {split} rows are of {count:,} group{'s' if count > 1 else ''}: of fewer than "
        f"{FEWEST_GROUPS} no figure is called better or worse, and no bound of the gate is read from an interval."
        for split, count in found.groups.items()
        if split != "selection" and are_few(count)
    ]


def listed(counts: Mapping[str, int]) -> str:
    """Return names with their counts in one line."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


class PurgeCount(Protocol):
    """The number of purged rows, as results have it, and the results page."""

    @property
    def rows(self) -> int:
        """Rows that were removed."""

    @property
    def of(self) -> int:
        """Rows of train before."""

    @property
    def way(self) -> str:
        """The way of splitting: ``text``, ``group`` or ``none``."""


def purged_briefly(purged: PurgeCount | None) -> str:
    """Return a few words on the purge of a finished run's training rows; ``purged`` is None if it was not recorded."""
    if purged is None:
        return BEFORE
    return "train not purged" if purged.way == "none" else f"{purged.rows:,} of {purged.of:,} training rows purged"
