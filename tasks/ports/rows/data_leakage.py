"""Data leakage: rows for selection or evaluation that overlap with training data, by the same measure as the purge of
train (``overlap``).

Augmented rows are variants of training rows, so they need no comparison of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tasks.ports.rows.overlap import NONE, HeldBack, Sentences
from tasks.ports.rows.row_files import has_split
from tasks.ports.rows.seen import read_sentences

JUDGING = ("validation", "holdout")
HELD = ("selection", *JUDGING)


def leaked(learned: Iterable[Sentences], held: Mapping[str, Sequence[Sentences]]) -> dict[str, int]:
    """Return for each split the number of held-back rows that overlap with a learned row."""
    index = HeldBack([row for rows in held.values() for row in rows])
    index.overlaps(learned)
    return by_split(index.found().tolist(), held)


def free_of(learned: Iterable[Sentences], held: Mapping[str, Sequence[Sentences]]) -> list[int]:
    """Return the numbers of the learned rows that overlap with no held-back row."""
    index = HeldBack([row for rows in held.values() for row in rows])
    return [int(row) for row in np.flatnonzero(index.overlaps(learned) == NONE)]


def leaked_by_group(
    learned: Iterable[tuple[str, Sentences]], held: Mapping[str, Sequence[tuple[str, Sentences]]]
) -> dict[str, int]:
    """Return for each split the number of held-back rows whose group or exact text is also learned from; each row comes
    with its group."""
    groups, texts = set(), set()
    for group, row in learned:
        groups.add(group)
        texts.add(row)
    return by_split([group in groups or row in texts for rows in held.values() for group, row in rows], held)


def by_split(found: Sequence[bool], held: Mapping[str, Sequence[object]]) -> dict[str, int]:
    """Return for each split the number of found rows; ``found`` has one value for each row of all splits, in order."""
    counts, start = {}, 0
    for split, rows in held.items():
        counts[split] = sum(found[start : start + len(rows)])
        start += len(rows)
    return counts


def held_sentences(rows: Path) -> dict[str, list[Sentences]]:
    """Read the texts of the splits that are held back from a folder of prepared rows."""
    return {split: read_sentences(rows, split) for split in HELD if has_split(rows, split)}
