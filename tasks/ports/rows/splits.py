"""Splits: which rows of a table are held back, and which of the others may be learned from.

Held-back rows come first: the validation split, drawn or given, then selection and holdout. Rows are drawn among those
that stand inside of no other row, and every training row that overlaps with a held-back one (``overlap``) is then taken
out of train. A column of groups does the same by groups: no group, and no text, is on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from tasks.errors import DataError
from tasks.ports.rows.leaks import HELD, leaked, leaked_by_group
from tasks.ports.rows.overlap import NONE, HeldBack, Sentences, numbered, related, sentences_of, standing_alone
from tasks.recipe.data import Data

MOST_HELD = {"selection": 0.1, "holdout": 0.2}  # share of train that a held-back split may take
MOST_PURGED = 0.4  # share of train that may be taken out of it because of what is held back
WAY_OUT = "name a column of groups (data.group), or set data.purge: false, with which the gate counts what leaks"


@dataclass
class Split:
    """Rows of one split as columns, and where they came from."""

    file: str
    texts: list[str]
    pairs: list[str] | None
    labels: list[Any]
    groups: list[str] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Split:
        """Return some of the rows."""
        pairs, groups = (
            None if column is None else [column[row] for row in rows] for column in (self.pairs, self.groups)
        )
        return Split(self.file, [self.texts[row] for row in rows], pairs, [self.labels[row] for row in rows], groups)

    @property
    def sentences(self) -> list[Sentences]:
        """The folded texts of every row."""
        return sentences_of(self.texts, self.pairs)

    @property
    def numbers(self) -> np.ndarray:
        """The group of every row by number: the user's, or rows that overlap with each other; figures of one group are
        not independent. [N]"""
        return related(self.sentences) if self.groups is None else numbered(self.groups)


@dataclass(frozen=True)
class Held:
    """What is held back, in the order in which it was: the rows of a given validation split, then those drawn from
    train, by split in groups."""

    given: Split | None
    drawn: Mapping[str, Sequence[Sequence[int]]]
    short: Mapping[str, int]
    """Rows that were asked for, of the splits for which there were too few."""

    def rows(self, split: str) -> list[int]:
        """Return the rows of train that were drawn for a split."""
        return [row for group in self.drawn[split] for row in group]

    @property
    def all_drawn(self) -> list[int]:
        """The rows of train that were drawn, in order."""
        return [row for split in self.drawn for row in self.rows(split)]

    @property
    def before(self) -> int:
        """How many held-back rows are not train's."""
        return len(self.given) if self.given else 0


def divide(splits: Mapping[str, Split], data: Data) -> tuple[dict[str, Split], dict[str, Any]]:
    """Hold rows back and take what overlaps with them out of train; return the splits, and facts about what was taken
    out."""
    train, sentences = splits["train"], splits["train"].sentences
    groups = shuffled_groups(train, sentences, data)
    held = draw(train, drawable(groups, sentences, data), splits.get("validation"), data)
    first_N = first_overlaps(train, sentences, held, data)
    is_drawn_N = np.zeros(len(train), bool)
    is_drawn_N[held.all_drawn] = True
    purged_N = (first_N < NONE) & ~is_drawn_N
    if purged_N.sum() > MOST_PURGED * len(train):
        raise DataError(refusal(train, held, first_N, int(purged_N.sum())))
    rest = [row for group in groups for row in group if not (purged_N[row] or is_drawn_N[row])][: data.train_rows]
    if not rest:
        raise DataError(f"{train.file} has {len(train)} rows and none is left to learn from; hold fewer back")
    words_N = np.asarray([sum(len(sentence.split()) for sentence in row) for row in sentences])
    facts = {
        "rows": int(purged_N.sum()),
        "of": len(train),
        "way": "group" if data.group else "text" if data.purge else "none",
        "by": purged_by_split(first_N[purged_N], held),
        "words_before": float(words_N.mean()),
        "words_left": float(words_N[rest].mean()),
        "short": dict(held.short),
    }
    parts = {
        name: train.take(sorted(held.rows(name))) for name in held.drawn if held.drawn[name] or name == "selection"
    }
    return {"train": train.take(sorted(rest)), **({"validation": held.given} if held.given else {}), **parts}, facts


def shuffled_groups(train: Split, sentences: Sequence[Sentences], data: Data) -> list[list[int]]:
    """Return rows of equal text, or of one group of the user's, together; the order depends on the seed and on what
    rows say, not on where they stand."""
    groups: dict[bytes, list[int]] = {}
    for row, names in enumerate(sentences if train.groups is None else ((group,) for group in train.groups)):
        groups.setdefault(sha256("\0".join([str(data.seed), *names]).encode()).digest(), []).append(row)
    return [groups[digest] for digest in sorted(groups)]


def drawable(groups: list[list[int]], sentences: Sequence[Sentences], data: Data) -> list[list[int]]:
    """Return the groups of which rows may be drawn: where text decides, those that stand inside of no other row."""
    if data.group or not data.purge:
        return groups
    different = list(dict.fromkeys(sentence for row in sentences for sentence in row))
    alone = dict(zip(different, standing_alone(different).tolist(), strict=True))
    return [group for group in groups if all(alone[sentence] for sentence in sentences[group[0]])]


def draw(train: Split, order: Sequence[Sequence[int]], given: Split | None, data: Data) -> Held:
    """Draw the rows that are held back from train."""
    wanted = {"selection": data.selection_rows, "holdout": data.holdout_rows}
    if given is None:
        wanted = {"validation": max(1, round(len(train) * data.validation_share)), **wanted}
    drawn: dict[str, list[Sequence[int]]] = {name: [] for name in wanted}
    short, start = {}, 0
    for name, count in wanted.items():
        limit, rows = min(count, int(len(train) * MOST_HELD.get(name, 0.5))), 0
        while start < len(order) and rows < limit:
            drawn[name].append(order[start])
            rows, start = rows + len(order[start]), start + 1
        if rows < limit:
            short[name] = count
        if limit and not rows:
            raise DataError(
                f"no row of {train.file} is left to be held back for {name}: {len(order):,} of its {len(train):,} "
                f"rows stand inside of "
                f"no other row; hold fewer back, give a validation file, {WAY_OUT}"
            )
    return Held(given, drawn, short)


def first_overlaps(train: Split, sentences: Sequence[Sentences], held: Held, data: Data) -> np.ndarray:
    """Return for each row of train the place of the first held-back row that takes it out of train, ``NONE`` where none
    does. [N]"""
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
    """Return for each learned row the place of the first held-back row of its group, or of its text."""
    by_group: dict[str, int] = {}
    by_text: dict[Sentences, int] = {}
    for place, (group, row) in enumerate(held):
        by_group.setdefault(group, place)
        by_text.setdefault(row, place)
    return np.asarray([min(by_group.get(group, NONE), by_text.get(row, NONE)) for group, row in learned], np.int64)


def purged_by_split(first: np.ndarray, held: Held) -> dict[str, int]:
    """Count what was taken out of train by the split that took it out first."""
    ends = {
        **({"validation": held.before} if held.given else {}),
        **{name: len(held.rows(name)) for name in held.drawn},
    }
    edges = np.cumsum([0, *ends.values()])
    return {
        name: int(((first >= low) & (first < high)).sum())
        for name, low, high in zip(ends, edges[:-1], edges[1:], strict=True)
    }


def refusal(train: Split, held: Held, first_N: np.ndarray, purged: int) -> str:
    """Say that too much of train would go, and the largest holdout with which it would not."""
    many = sum(len(held.rows(name)) for name in held.drawn) + held.before
    said = (
        f"{purged:,} of the {len(train):,} rows of {train.file} ({purged / len(train):.1%}) overlap with the "
        f"{many:,} rows that are held back and would be "
        f"taken out of train; at most {MOST_PURGED:.0%} may go"
    )
    largest = largest_holdout(held, first_N, MOST_PURGED * len(train))
    if largest is None:
        return f"{said}, and even without a holdout more would; lower data.selection_rows, {WAY_OUT}"
    return (
        f"{said}; the largest holdout that fits is {largest:,} rows: set data.holdout_rows to {largest} or less, "
        f"or {WAY_OUT}"
    )


def largest_holdout(held: Held, first_N: np.ndarray, most: float) -> int | None:
    """Return the most holdout rows with which no more than ``most`` rows are taken out of train; None where even
    without them more would be.

    Rows are drawn for the holdout last, so a smaller one is the beginning of a larger one, and its rows stand in the
    same order.
    """
    sizes = np.cumsum([0, *(len(group) for group in held.drawn["holdout"])])
    drawn = sum(len(held.rows(name)) for name in held.drawn if name != "holdout") + sizes
    # Every drawn row overlaps with itself, and so is among those counted here; those are held back, not taken out.
    purged = np.searchsorted(np.sort(first_N), held.before + drawn) - drawn
    fitting = sizes[purged <= most]
    return int(fitting.max()) if len(fitting) else None


def leaks_of(splits: Mapping[str, Split]) -> dict[str, int]:
    """Count the held-back rows that overlap with train; where rows come in groups, those whose group or text is on both
    sides."""
    held = {name: rows for name, rows in splits.items() if name in HELD}
    train = splits["train"]
    if train.groups is None:
        return leaked(train.sentences, {name: rows.sentences for name, rows in held.items()})
    return leaked_by_group(with_groups(train), {name: with_groups(rows) for name, rows in held.items()})


def with_groups(rows: Split) -> list[tuple[str, Sentences]]:
    """Return the texts of rows that have groups, each with its group."""
    return list(zip(rows.groups or (), rows.sentences, strict=True))
