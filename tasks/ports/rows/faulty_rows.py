"""Rows that cannot be used: with an empty text, in a broken line, or of a class with too few rows for every split. They
are all reported at once, and refused or left out (``data.faulty_rows``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.splits import Split
from tasks.ports.rows.tables import ReadRows, count_of, drop_unlabelled, is_empty, others, table_rows
from tasks.recipe.data import Data
from tasks.task_types.interfaces import Reader
from tasks.task_types.texts.templates import Unrendered

DISPLAYED = 10
"""Rare classes that a message names."""


@dataclass(frozen=True)
class UsableRows:
    """The rows of a table that have a text and a label, with labels as they are stored."""

    rows: Split
    empty: int
    """Rows without a text."""
    faults: tuple[str, ...]
    """Sentences about the rows that are left out, except those without a label."""


def usable_rows(read: ReadRows, spec: TaskSpec, reader: Reader, names: Sequence[str] | None) -> UsableRows:
    """Return the rows that can be used. Raises DataError for an illegal label."""
    told, empty = empty_texts(read.rows, spec, reader)
    faults = (*read.broken, *told)
    try:
        labels = reader.labels(table_rows(read, spec), names)
    except DataError as error:
        raise DataError("; ".join([*faults, str(error)])) from error
    kept = [row for row in range(len(labels)) if row not in empty]
    rows = with_empty_texts(replace(read.rows, labels=labels).take(kept))
    return UsableRows(drop_unlabelled(rows, rows.labels), len(empty), faults)


def with_empty_texts(rows: Split) -> Split:
    """Return rows whose absent texts are empty: those that may be asked without one."""
    return replace(rows, texts=[text or "" for text in rows.texts])


def empty_texts(rows: Split, spec: TaskSpec, reader: Reader) -> tuple[list[str], set[int]]:
    """Return sentences about the rows without a text that they need, and the places of these rows from 0 on."""
    told, places = [], set()
    may_lack = (reader.asked_without_text is not None and reader.asked_without_text(spec.pair), False)
    both = ((spec.text, rows.texts), (spec.pair, rows.pairs or []))
    for (column, values), is_optional in zip(both, may_lack, strict=True):
        cells: Sequence[Any] = values
        reasons = {place: cell.reason for place, cell in enumerate(cells) if isinstance(cell, Unrendered)}
        if reasons:
            first, more = next(iter(reasons)), row_count_note([*reasons])
            told.append(f"{rows.file}, row {first + 1}: {reasons[first]}{more}")
            places |= set(reasons)
        for noun, is_fault in (("is empty", is_empty), ("is no text but a number or a list", is_other)):
            found = [
                place for place, text in enumerate(values) if is_fault(text) and not (is_optional and is_empty(text))
            ]
            if found:
                told.append(
                    f"{rows.file}, row {found[0] + 1}: the text in column {column!r} {noun}{row_count_note(found)}"
                )
                places |= set(found)
    return told, places


def row_count_note(places: Sequence[int]) -> str:
    """Return the number of some rows and the rows behind the first; empty for a single row."""
    more = others([place + 1 for place in places[1:]], "row")
    return f" ({count_of(len(places), 'row')}{more})" if more else ""


def is_other(text: Any) -> bool:
    """Tell whether a cell is something else than a text."""
    return text is not None and not isinstance(text, (str, Unrendered))


def splits_to_draw(data: Data, *, given: bool) -> list[str]:
    """Return the splits that are drawn from train; ``given``: the source has a validation split."""
    counts = {"validation": not given, "selection": data.selection_rows, "holdout": data.holdout_rows}
    return [name for name, wanted in counts.items() if wanted]


def rare_classes(train: Split, reader: Reader, names: Sequence[str], drawn: Sequence[str]) -> dict[int, int]:
    """Return the classes that cannot be in train and in every split that is drawn from it, with the number of their
    different texts, or of their groups."""
    different: dict[int, set[object]] = {}
    units = train.groups if train.groups is not None else train.sentences
    for label, unit in zip(train.labels, units, strict=True):
        for number in [label] if reader.classes_of is None else reader.classes_of(label):
            different.setdefault(number, set()).add(unit)
    counts = {number: len(different.get(number, ())) for number in range(len(names))}
    return {number: count for number, count in counts.items() if count < 1 + len(drawn)}


def rare_sentences(file: str, rare: Mapping[int, int], names: Sequence[str], drawn: Sequence[str]) -> list[str]:
    """Return a sentence about classes with too few rows; none if there are none."""
    if not rare:
        return []
    listed = [f"{names[number]!r} ({count_of(count, 'row')})" for number, count in list(rare.items())[:DISPLAYED]]
    more = f" and {len(rare) - DISPLAYED} more" if len(rare) > DISPLAYED else ""
    return [
        f"{file}: too few different rows of {'class' if len(rare) == 1 else 'classes'} {', '.join(listed)}{more}: "
        f"{1 + len(drawn)} are needed, one for each of {', '.join(['train', *drawn])}"
    ]


def rows_without_label(unlabelled: Mapping[str, int]) -> list[str]:
    """Return a sentence about the rows of each split that have a text and no label, which no run uses."""
    return [f"{count_of(count, 'row')} of {split} without a label" for split, count in unlabelled.items() if count]


def require_no_faults(faults: Sequence[str], data: Data) -> None:
    """Raise DataError for faulty rows, with all of them, unless they are to be left out."""
    if faults and data.faulty_rows == "refuse":
        raise DataError(
            f"{'; '.join(faults)}; correct these rows, or set data.faulty_rows: drop, which leaves them out"
        )


def without_classes(
    splits: Mapping[str, Split], reader: Reader, names: Sequence[str] | None, left_out: Collection[int]
) -> tuple[dict[str, Split], list[str] | None]:
    """Return the splits without the rows of some classes, and the names of the others. Raises DataError if fewer than
    two classes are left."""
    if names is None or not left_out:
        return dict(splits), None if names is None else list(names)
    kept = [number for number in range(len(names)) if number not in left_out]
    if len(kept) < 2:
        raise DataError(
            f"{len(kept)} of {len(names)} classes would be left without those that have too few rows; give each class "
            f"more rows, or hold out fewer splits"
        )
    numbers = {number: place for place, number in enumerate(kept)}
    renumber = reader.renumber or (lambda label, numbers: numbers.get(label))
    left = {
        split: drop_unlabelled(rows, [renumber(label, numbers) for label in rows.labels])
        for split, rows in splits.items()
    }
    return left, [names[number] for number in kept]
