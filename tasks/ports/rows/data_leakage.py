"""Data leakage: rows for selection or evaluation that overlap with training data, by the same measure as the purge of
train (``overlap``).

Between groups, words in common are no leak, because who names them says what is independent (the questions of a
passage, the rows of an author): a row leaks if a whole text of it stands in a training row. Groups that divide nothing,
such as a number for each row, do not count.

Augmented rows are variants of training rows, so they need no comparison of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tasks.ports.rows.overlap import GREAT, GREAT_SHARE, NONE, HeldBack, Sentences, contained, sentences_of
from tasks.ports.rows.row_files import has_split
from tasks.ports.rows.seen import read_sentences
from tasks.ports.rows.splits import Split

JUDGING = ("validation", "holdout")
HELD = ("selection", *JUDGING)
WHOLE_WORDS = 3  # words; a shorter text, such as the aspect of a review, stands in texts of other groups by chance
MOST_ALONE = 0.9  # share of rows alone in their group, above which groups divide nothing


def leaked(learned: Iterable[Sentences], held: Mapping[str, Sequence[Sentences]]) -> dict[str, int]:
    """Return for each split the number of held-back rows that overlap with a learned row."""
    index = HeldBack([row for rows in held.values() for row in rows])
    index.overlaps(learned)
    return by_split(index.found().tolist(), held)


def free_of(learned: Iterable[Sentences], held: Mapping[str, Sequence[Sentences]]) -> list[int]:
    """Return the numbers of the learned rows that overlap with no held-back row."""
    index = HeldBack([row for rows in held.values() for row in rows])
    return [int(row) for row in np.flatnonzero(index.overlaps(learned) == NONE)]


def leakage_of(splits: Mapping[str, Split], learned: str = "train") -> dict[str, int]:
    """Return for each other held-back split the number of rows that leak from train, or from another split that is
    ``learned`` from: that overlap with it, or between groups, of which a whole text stands there
    (``leaked_by_group``)."""
    held, there = others_of(splits, learned), splits[learned]
    if there.groups is None or rows_alone(splits["train"]):
        return leaked(there.sentences, {name: rows.sentences for name, rows in held.items()})
    places = dividing_columns(splits["train"])
    rows = {name: grouped_rows(own, places) for name, own in held.items()}
    return leaked_by_group(grouped_rows(there, places), rows)


def overlap_of_groups(splits: Mapping[str, Split]) -> dict[str, int]:
    """Return for each held-back split the number of rows that overlap with train by the measure of the purge, where
    ``leakage_of`` counts whole texts alone; empty where none does."""
    train = splits["train"]
    if train.groups is None or rows_alone(train):
        return {}
    held = others_of(splits, "train")
    found = leaked(train.sentences, {name: rows.sentences for name, rows in held.items()})
    return found if any(found.values()) else {}


def others_of(splits: Mapping[str, Split], learned: str) -> dict[str, Split]:
    """Return the held-back splits but the one that is ``learned`` from."""
    return {name: rows for name, rows in splits.items() if name in HELD and name != learned}


# --- groups -----------------------------------------------------------------------------------------------------------


class GroupedRow(NamedTuple):
    """The texts of a row with its group."""

    group: str
    texts: Sentences
    own: Sentences
    """Those of its texts that should stand in no row of another group."""


def leaked_by_group(learned: Sequence[GroupedRow], held: Mapping[str, Sequence[GroupedRow]]) -> dict[str, int]:
    """Return for each split the number of held-back rows of which the group, all texts, or a whole text of their own
    are also learned from.

    A text of fewer than ``WHOLE_WORDS`` words, or one that very many learned rows have, stands in other groups by
    chance.
    """
    groups, texts = {row.group for row in learned}, {row.texts for row in learned}
    rows = [row for own in held.values() for row in own]
    is_whole = standing_in([row.own for row in rows], [row.texts for row in learned])
    found = [whole or row.group in groups or row.texts in texts for whole, row in zip(is_whole, rows, strict=True)]
    return by_split(found, held)


def standing_in(held: Sequence[Sentences], learned: Sequence[Sentences]) -> list[bool]:
    """Return for each held-back row whether one of its texts stands whole in a learned row."""
    index = HeldBack(held)
    # what contains a text overlaps with it, so that most rows need no further search
    first_N, found_N = index.overlaps(learned), index.found()
    counts = Counter(text for row in learned for text in row)
    most = max(GREAT, GREAT_SHARE * len(learned))
    near = (text for row, found in zip(held, found_N, strict=True) if found for text in row)
    texts = [text for text in dict.fromkeys(near) if len(text.split()) >= WHOLE_WORDS and counts[text] <= most]
    others = dict.fromkeys(text for row, first in zip(learned, first_N, strict=True) if first < NONE for text in row)
    whole = {text for text, is_there in zip(texts, contained(texts, list(others)), strict=True) if is_there}
    return [not whole.isdisjoint(row) for row in held]


def rows_alone(rows: Split) -> int:
    """Return the number of rows that are alone in their group if nearly all of them are, and 0 otherwise: groups like
    numbers of rows say nothing of what rows have in common. Of groups that are texts of the rows, none does that."""
    alone = sum(count == 1 for count in Counter(rows.groups or ()).values())
    return alone if alone > MOST_ALONE * len(rows) and not columns_of_names(rows, folded_columns(rows)) else 0


def alone_note(rows: Split, group: str | None) -> list[str]:
    """Return a sentence about a column of groups that divides hardly any rows; empty for all others."""
    alone = rows_alone(rows)
    said = (
        f"{rows.file}: {alone:,} of the {len(rows):,} training rows are alone in their group ({group}), which divides "
        f"nothing: rows overlap as if there were none; name a column whose values recur, or remove it"
    )
    return [said] if alone else []


def dividing_columns(rows: Split) -> list[int]:
    """Return the columns by which groups divide, 0 for the texts and 1 for the second ones: those of which the groups
    are the texts; else those with one text in each group; else all.

    If passages divide, a question that is asked about two of them is no leak.
    """
    columns, names = folded_columns(rows), rows.groups or []
    same = [place for place, one in enumerate(columns) if len({*zip(names, one, strict=True)}) == len({*names})]
    return columns_of_names(rows, columns) or same or [*range(len(columns))]


def columns_of_names(rows: Split, columns: Sequence[Sequence[str]]) -> list[int]:
    """Return which of the rows' folded ``columns`` have the names of their groups as texts."""
    names = folded_columns(replace(rows, texts=rows.groups or [], pairs=None))[0]
    return [place for place, column in enumerate(columns) if column == names]


def folded_columns(rows: Split) -> list[list[str]]:
    """Return the folded texts of rows, and their second ones if there are any."""
    given = (column for column in (rows.texts, rows.pairs) if column is not None)
    return [[text for (text,) in sentences_of(column, before=rows.before)] for column in given]


def grouped_rows(rows: Split, places: Sequence[int]) -> list[GroupedRow]:
    """Return the texts of rows with their groups; the texts of the columns at some ``places`` are their own."""
    columns = folded_columns(rows)
    own = zip(*(columns[place] for place in places), strict=True)
    return [GroupedRow(*row) for row in zip(rows.groups or (), rows.sentences, own, strict=True)]


# --- counts -----------------------------------------------------------------------------------------------------------


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
