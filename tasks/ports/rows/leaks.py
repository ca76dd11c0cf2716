"""Leakage: rows that choose or judge a model and overlap with what it learns from, by the measure by which train is
purged (``overlap``).

Augmented rows are variants of training rows, and so are looked for where those are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tasks.ports.rows.overlap import HeldBack, Sentences
from tasks.ports.rows.row_files import has_split
from tasks.ports.rows.seen import read_sentences

JUDGING = ("validation", "holdout")
HELD = ("selection", *JUDGING)


def leaked(learned: Iterable[Sentences], held: Mapping[str, Sequence[Sentences]]) -> dict[str, int]:
    """Count by split the held-back rows that overlap with a learned one."""
    index = HeldBack([row for rows in held.values() for row in rows])
    index.overlaps(learned)
    return by_split(index.found().tolist(), held)


def leaked_by_group(
    learned: Iterable[tuple[str, Sentences]], held: Mapping[str, Sequence[tuple[str, Sentences]]]
) -> dict[str, int]:
    """Count by split the held-back rows whose group is also learned from, or whose very text is; rows are given with
    their groups."""
    groups, texts = set(), set()
    for group, row in learned:
        groups.add(group)
        texts.add(row)
    return by_split([group in groups or row in texts for rows in held.values() for group, row in rows], held)


def by_split(found: Sequence[bool], held: Mapping[str, Sequence[object]]) -> dict[str, int]:
    """Add up by split what was found of all rows of all splits."""
    counts, start = {}, 0
    for split, rows in held.items():
        counts[split] = sum(found[start : start + len(rows)])
        start += len(rows)
    return counts


def held_sentences(rows: Path) -> dict[str, list[Sentences]]:
    """Read the texts of the splits that are held back from a folder of prepared rows."""
    return {split: read_sentences(rows, split) for split in HELD if has_split(rows, split)}
