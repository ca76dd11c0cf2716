"""Splits: the division of a table into held-back rows and training rows.

Held-back rows are selected first: the validation split, drawn or given, then selection and holdout. Rows are drawn
among those that no other row contains, and every training row that overlaps with a held-back row (``overlap``) is then
removed from train. With a column of groups, rows are divided by groups: no group, and no text, is on both sides. Where
too much of train would be removed, as of pairs whose sentences recur, whole groups of overlapping rows are held back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tasks.errors import DataError
from tasks.ports.rows.overlap import (
    NONE,
    HeldBack,
    Sentences,
    folded,
    numbered,
    related,
    sentences_of,
    standing_alone,
)
from tasks.recipe.data import Data
from tasks.results.facts import Purge
from tasks.task_types.texts.templates import LINES, on_one_line
from tasks.task_types.texts.word_counts import words_in

MOST_HELD = {"selection": 0.1, "holdout": 0.2}  # largest share of train for a held-back split
MOST_PURGED = 0.4  # largest share of train that may be removed because it overlaps with held-back rows
LARGEST_DRAWN = 0.05  # largest share of train of a group of overlapping rows that may be held back
WAY_OUT = "name a column of groups (data.group), or set data.purge: false, with which the gate counts overlapping rows"


@dataclass
class Split:
    """Rows of one split as columns, and the name of their file."""

    file: str
    texts: list[str]
    pairs: list[str] | None
    labels: list[Any]
    groups: list[str] | None = None
    """Groups by which rows are divided."""
    units: list[str] | None = None
    """Groups whose rows are judged together (``task.group``)."""
    before: tuple[str, str] = ("", "")
    """What stands before every text, and every second text, such as a prompt: rows do not overlap by it."""

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Split:
        """Return a split with the given rows only."""
        pairs, groups, units = (
            None if column is None else [column[row] for row in rows]
            for column in (self.pairs, self.groups, self.units)
        )
        texts, labels = ([column[row] for row in rows] for column in (self.texts, self.labels))
        return Split(self.file, texts, pairs, labels, groups, units, self.before)

    @property
    def sentences(self) -> list[Sentences]:
        """The folded texts of every row."""
        return sentences_of(self.texts, self.pairs, self.before)

    @property
    def numbers(self) -> np.ndarray:
        """The group number of every row: the user's groups, or groups of overlapping rows; results within one group are
        not independent. [N]"""
        return related(self.sentences) if self.groups is None else numbered(self.groups)


def divided_by_text(splits: Mapping[str, Split], role: str) -> dict[str, Split]:
    """Return splits whose groups are the rows with the same text in the column of a role (``Reader.divided_by``):
    questions of one passage are not independent. Without a role, and where rows have groups, these stay.

    Groups whose names differ in case, character width or white space alone are one group (``folded``), so that two
    copies of a passage are never on both sides. It has the first of its names in alphabetical order: where there are no
    such names, rows are drawn as before.
    """
    grouped = dict(splits)
    if role:
        own = {split: rows.pairs if role == "pair" else rows.texts for split, rows in splits.items()}
        grouped |= {split: replace(rows, groups=rows.groups or own[split]) for split, rows in splits.items()}
    forms = {name: folded(name) for rows in grouped.values() for name in rows.groups or ()}
    first = {forms[name]: name for name in sorted(forms, reverse=True)}
    return {
        split: rows if rows.groups is None else replace(rows, groups=[first[forms[name]] for name in rows.groups])
        for split, rows in grouped.items()
    }


def gathered_rows(rows: Split) -> Split:
    """Return rows of which those with one text are one: its second texts are lines, in their order, and its label is
    the list of theirs. A table whose labels are lists has such rows already."""
    if rows.pairs is None or any(isinstance(label, list) for label in rows.labels):
        return rows
    places: dict[Any, list[int]] = {}
    for row, text in enumerate(rows.texts):
        places.setdefault(text if isinstance(text, str) else (row,), []).append(row)
    found = rows.take([own[0] for own in places.values()])
    pairs: list[Any] = []
    for own in places.values():
        cells: list[Any] = [rows.pairs[row] for row in own]
        other = next((cell for cell in cells if not isinstance(cell, str) or not cell.strip()), None)
        whole = all(isinstance(cell, str) and cell.strip() for cell in cells)
        pairs.append(LINES.join(map(on_one_line, cells)) if whole else other)
    labels = [[rows.labels[row] for row in own] for own in places.values()]
    return replace(found, pairs=pairs, labels=labels)


@dataclass(frozen=True)
class Held:
    """The held-back rows, in order: the rows of a given validation split, then those drawn from train, by split, in
    groups."""

    given: Split | None
    drawn: Mapping[str, Sequence[Sequence[int]]]
    short: Mapping[str, int]
    """Requested number of rows of each split for which there were too few rows."""

    def rows(self, split: str) -> list[int]:
        """Return the rows of train that were drawn for a split."""
        return [row for group in self.drawn[split] for row in group]

    @property
    def all_drawn(self) -> list[int]:
        """The rows of train that were drawn, in order."""
        return [row for split in self.drawn for row in self.rows(split)]

    @property
    def before(self) -> int:
        """Number of held-back rows that are not from train."""
        return len(self.given) if self.given else 0


def no_train_file(source: Path, files: Sequence[Path]) -> str:
    """Return a sentence about a folder of which no file has the name of the training rows."""
    of_texts = len(files) > 1 and all(path.name.removesuffix(".gz").endswith(".txt") for path in files)
    listed, more = ", ".join(path.name for path in files[:5]), f" and {len(files) - 5:,} more" if len(files) > 5 else ""
    rename = "name one of them in place of the folder, or call it train.csv, train.txt or train.parquet"
    way_out = 'write each text as a line {"text": "…"} of train.jsonl' if of_texts else rename
    return f"{source} holds no train file; found {listed or 'nothing'}{more}; {way_out}"


def divide(
    splits: Mapping[str, Split], data: Data, classes: Sequence[Any] | None = None
) -> tuple[dict[str, Split], Purge]:
    """Hold rows back and remove overlapping rows from train; return the splits, and facts about the removed rows. With
    the classes of the training rows, every split has them in the proportions of train."""
    train, sentences, given = splits["train"], splits["train"].sentences, splits.get("validation")
    groups = shuffled_groups(train, sentences, data)
    classes = [0] * len(train) if classes is None else classes
    way = "group" if data.group else "text" if data.purge else "none"
    held = draw(train, drawable(groups, sentences, data), given, data, classes)
    first_N, is_drawn_N, purged_N = removed_rows(train, sentences, held, data)
    most = MOST_PURGED * len(train)
    if purged_N.sum() > most:
        largest = largest_holdout(held, first_N, most)
        refused = refusal(train, held, int(purged_N.sum()), largest)
        if way != "text" or largest is not None:
            raise DataError(refused)
        way, groups = "overlap", overlapping_groups(groups, sentences)
        held = draw(train, [one for one in groups if len(one) <= LARGEST_DRAWN * len(train)], given, data, classes)
        first_N, is_drawn_N, purged_N = removed_rows(train, sentences, held, data)
        if purged_N.sum() > most:
            raise DataError(refused)
    remaining = [
        [row for row in group if not (purged_N[row] or is_drawn_N[row])] for group in stratified(groups, classes)
    ]
    rest = at_most(remaining, data.train_rows, whole=train.groups is not None)
    if not rest:
        raise DataError(f"{train.file} has {len(train)} rows and none remains for training; hold out fewer")
    words_N = np.asarray([sum(map(words_in, row)) for row in sentences])
    facts = Purge(
        rows=int(purged_N.sum()),
        of=len(train),
        way=way,
        by=purged_by_split(first_N[purged_N], held),
        words_before=float(words_N.mean()),
        words_left=float(words_N[rest].mean()),
        short=dict(held.short),
    )
    parts = {
        name: train.take(sorted(held.rows(name))) for name in held.drawn if held.drawn[name] or name == "selection"
    }
    return {"train": train.take(sorted(rest)), **({"validation": held.given} if held.given else {}), **parts}, facts


def shuffled_groups(train: Split, sentences: Sequence[Sentences], data: Data) -> list[list[int]]:
    """Return groups of rows with equal text, or of the user's groups, in an order that depends on the seed and the
    content, but not on the position of rows."""
    groups: dict[bytes, list[int]] = {}
    for row, names in enumerate(sentences if train.groups is None else ((group,) for group in train.groups)):
        groups.setdefault(sha256("\0".join([str(data.seed), *names]).encode()).digest(), []).append(row)
    return [groups[digest] for digest in sorted(groups)]


def overlapping_groups(groups: Sequence[Sequence[int]], sentences: Sequence[Sentences]) -> list[list[int]]:
    """Return groups of rows that overlap with each other, directly or through others, in the order of their first rows
    in ``groups``."""
    found, names = dict[int, list[int]](), related(sentences).tolist()
    for row in (row for group in groups for row in group):
        found.setdefault(names[row], []).append(row)
    return list(found.values())


def drawable(groups: list[list[int]], sentences: Sequence[Sentences], data: Data) -> list[list[int]]:
    """Return the groups from which rows may be drawn; with a purge by text, only those that no other row contains."""
    if data.group or not data.purge:
        return groups
    different = list(dict.fromkeys(sentence for row in sentences for sentence in row))
    alone = dict(zip(different, standing_alone(different).tolist(), strict=True))
    return [group for group in groups if all(alone[sentence] for sentence in sentences[group[0]])]


def at_most(groups: Sequence[Sequence[int]], most: int | None, *, whole: bool) -> list[int]:
    """Return the rows of the first groups, at most so many; if groups stay ``whole``, none is cut but one that alone
    has more rows."""
    rows: list[int] = []
    for group in groups:
        if whole and most is not None and rows and len(rows) + len(group) > most:
            break
        rows += group
    return rows[:most]


def stratified(groups: Sequence[Sequence[int]], classes: Sequence[Any]) -> list[Sequence[int]]:
    """Return groups in an order of which every beginning has the classes in the proportions of all groups; first comes
    one group of each class, so that no class is missing. A group has the class of its first row; within a class, groups
    keep their order."""
    by_class: dict[Any, list[Sequence[int]]] = {}
    for group in groups:
        by_class.setdefault(classes[group[0]], []).append(group)
    # The sort is stable: of equal places, the class whose group came first in the shuffled order is first.
    places = [
        (place > 0, (place + 0.5) / len(own), group) for own in by_class.values() for place, group in enumerate(own)
    ]
    return [group for *_, group in sorted(places, key=lambda one: one[:2])]


def draw(train: Split, order: Sequence[Sequence[int]], given: Split | None, data: Data, classes: Sequence[Any]) -> Held:
    """Draw the held-back rows from train, with its classes in proportion."""
    wanted = {"selection": data.selection_rows, "holdout": data.holdout_rows}
    if given is None:
        wanted = {"validation": max(1, round(len(train) * data.validation_share)), **wanted}
    drawn: dict[str, list[Sequence[int]]] = {name: [] for name in wanted}
    short, left, all_groups = {}, list(order), len(order)
    for name, count in wanted.items():
        limit, rows, left = min(count, int(len(train) * MOST_HELD.get(name, 0.5))), 0, stratified(left, classes)
        while len(drawn[name]) < len(left) and rows < limit:
            group = left[len(drawn[name])]
            drawn[name].append(group)
            rows += len(group)
        left = left[len(drawn[name]) :]
        if rows < limit:
            short[name] = count
        if limit and not rows:
            raise DataError(
                f"no row of {train.file} remains to be held out for {name}: {all_groups:,} of its {len(train):,} "
                f"rows are not contained in another row; hold out fewer, provide a validation file, {WAY_OUT}"
            )
    return Held(given, drawn, short)


def removed_rows(
    train: Split, sentences: Sequence[Sentences], held: Held, data: Data
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each row of train the first held-back row that overlaps with it (``first_overlaps``), whether it is
    drawn, and whether it is to be removed. Each [N]"""
    first_N = first_overlaps(train, sentences, held, data)
    is_drawn_N = np.isin(np.arange(len(train)), held.all_drawn)
    return first_N, is_drawn_N, (first_N < NONE) & ~is_drawn_N


def first_overlaps(train: Split, sentences: Sequence[Sentences], held: Held, data: Data) -> np.ndarray:
    """Return for each row of train the index of the first held-back row that removes it from train, or ``NONE``.
    [N]"""
    given, drawn = held.given, held.all_drawn
    rows = [*(given.sentences if given else ()), *(sentences[row] for row in drawn)]
    if data.group:
        groups = (
            [*((given.groups or ()) if given else ()), *(train.groups[row] for row in drawn)] if train.groups else []
        )
        return first_in_common(
            [(group, row) for group, row in zip(groups, rows, strict=True)],
            list(zip(train.groups or (), sentences, strict=True)),
        )
    if not data.purge:
        return np.full(len(train), NONE)
    return HeldBack(rows).overlaps(sentences)


def first_in_common(held: Sequence[tuple[str, Sentences]], learned: Sequence[tuple[str, Sentences]]) -> np.ndarray:
    """Return for each learned row the index of the first held-back row with its group or its text, or ``NONE``."""
    by_group: dict[str, int] = {}
    by_text: dict[Sentences, int] = {}
    for place, (group, row) in enumerate(held):
        by_group.setdefault(group, place)
        by_text.setdefault(row, place)
    return np.asarray([min(by_group.get(group, NONE), by_text.get(row, NONE)) for group, row in learned], np.int64)


def purged_by_split(first: np.ndarray, held: Held) -> dict[str, int]:
    """Return for each held-back split the number of rows that it was the first to remove from train."""
    ends = {
        **({"validation": held.before} if held.given else {}),
        **{name: len(held.rows(name)) for name in held.drawn},
    }
    edges = np.cumsum([0, *ends.values()])
    return {
        name: int(((first >= low) & (first < high)).sum())
        for name, low, high in zip(ends, edges[:-1], edges[1:], strict=True)
    }


def refusal(train: Split, held: Held, purged: int, largest: int | None) -> str:
    """Return the message that too much of train would be removed, with the largest holdout that avoids this, if any."""
    many = sum(len(held.rows(name)) for name in held.drawn) + held.before
    said = (
        f"{purged:,} of the {len(train):,} rows of {train.file} ({purged / len(train):.1%}) overlap with the "
        f"{many:,} held-out rows and would be removed from train; at most {MOST_PURGED:.0%} may be removed"
    )
    if largest is None:
        return f"{said}, and a smaller holdout split does not suffice; lower data.selection_rows, {WAY_OUT}"
    return (
        f"{said}; the largest holdout that fits is {largest:,} rows: set data.holdout_rows to {largest} or less, "
        f"or {WAY_OUT}"
    )


def largest_holdout(held: Held, first_N: np.ndarray, most: float) -> int | None:
    """Return the largest number of holdout rows for which at most ``most`` rows are removed from train; None if more
    are removed even without a holdout.

    The holdout is drawn last, so a smaller holdout is the beginning of a larger one, with its rows in the same order.
    """
    sizes = np.cumsum([0, *(len(group) for group in held.drawn["holdout"])])
    drawn = sum(len(held.rows(name)) for name in held.drawn if name != "holdout") + sizes
    # Every drawn row overlaps with itself, so the count includes the drawn rows; these are held back, not removed.
    purged = np.searchsorted(np.sort(first_N), held.before + drawn) - drawn
    fitting = sizes[purged <= most]
    return int(fitting.max()) if len(fitting) else None
