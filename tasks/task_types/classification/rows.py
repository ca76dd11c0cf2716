"""Rows of classification: a label is a class, by name or number; empty in an unlabelled row.

-1 is a class in a column of numbers, as -1, 0 and 1 grade opinions. It is no label in a column that has no other one,
or whose file or recipe names other classes, as public data sets keep the labels of their test rows. So is a rare "-",
which SNLI writes where annotators did not agree.

The labels of a judging set become the task's classes by name, or by the mapping in the recipe. If a label stands for
several classes (``not_entailment`` for neutral and contradiction), these are merged: the prediction is chosen among all
classes first, and then counts as the merged class, as McCoy et al. 2019 (arXiv:1902.01007) evaluate models with three
classes on two. A merged class has the number of its first class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from difflib import get_close_matches
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.errors import DataError
from tasks.task_types.common_rows import (
    ANY_TEXT_FITS,
    NO_CLASS,
    is_amount,
    known_values,
    names_in_config,
    names_of_numbers,
)
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.types import CLASS, PAIR, TEXT

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CLASSES = 200
UNDECIDED = "-"
"""A sign that stands for no label, unless it is a class."""
ILLEGAL = -2
"""The number of a label that is no class."""
MOST_LISTED = 20
"""Labels that a message names."""
MOST_UNEQUAL = 4
"""How many times larger than the smallest class the largest may be, for accuracy to say enough."""
EQUAL, UNEQUAL = ("accuracy", "macro_f1"), ("macro_f1", "balanced_accuracy", "accuracy")
"""Metrics for classes of about equal and of unequal size; the first decides."""


def class_type() -> pa.DataType:
    """Return the Arrow type of class numbers."""
    import pyarrow as pa

    return pa.int64()


# --- the task's own rows ----------------------------------------------------------------------------------------------


def class_names(rows: TableRows) -> list[str]:
    """Return label names: those that the file declares, or else the distinct labels, sorted."""
    if rows.declared:
        return list(rows.declared)
    labels = {*known_labels(rows.columns["label"])}
    if not 2 <= len(labels) <= MOST_CLASSES:
        raise DataError(
            f"{rows.file} has {len(labels)} different labels in column {rows.names['label']!r}; 2 to {MOST_CLASSES} "
            f"are needed, or set kind: regression"
        )
    return [str(label) for label in sorted(labels, key=lambda label: (isinstance(label, str), label))]


def known_labels(labels: Sequence[Any]) -> list[Any]:
    """Return the labels that are there, of a column whose classes nobody names."""
    known = known_values(labels)
    counts = Counter(known)
    others = [label for label in counts if label not in (NO_CLASS, UNDECIDED)]
    is_class = {
        NO_CLASS: bool(others) and not any(isinstance(label, str) for label in others),
        UNDECIDED: len(others) < 2 or counts[UNDECIDED] >= min(counts[label] for label in others),
    }
    return [label for label in known if is_class.get(label, True)]


def class_numbers(rows: TableRows, names: Sequence[str] | None) -> list[int | None]:
    """Return labels as numbers of classes. Raises DataError for a label that is no class."""
    numbers = {name: number for number, name in enumerate(names or ())}
    meant = names_of_numbers(rows.declared, names or ())
    found = [class_number(label, numbers, meant) for label in rows.columns["label"]]
    wrong = [row for row, number in enumerate(found) if number == ILLEGAL]
    if wrong:
        labels = Counter(str(rows.columns["label"][row]) for row in wrong)
        more = "" if len(labels) == 1 else f" ({len(wrong):,} rows: {', '.join(list(labels)[:MOST_LISTED])})"
        raise DataError(
            f"{rows.file}, row {wrong[0] + 1}: the label {rows.columns['label'][wrong[0]]!r} is not one of "
            f"{', '.join(list(numbers)[:MOST_LISTED])}{more}; correct it or name it in task.labels"
        )
    return found


def class_number(label: Any, numbers: Mapping[str, int], meant: Mapping[int, str]) -> int | None:
    """Return the number of one label's class; None for no label, and ``ILLEGAL`` for one that is no class. A number
    stands for a name as ``meant``."""
    if is_none(label, numbers):
        return None
    is_number = isinstance(label, int) and not isinstance(label, bool)
    return numbers.get(meant.get(label, str(label)) if is_number else str(label), ILLEGAL)


def is_none(label: Any, names: Container[str]) -> bool:
    """Tell whether a cell has no label: it is empty, or one of the signs for that, which is no class of its own."""
    return label is None or label == "" or (label in (NO_CLASS, UNDECIDED) and str(label) not in names)


def require_classes(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Refuse a split in which a class never occurs, because its scores would be meaningless."""
    known = names or ()
    missing = [known[number] for number in sorted(set(range(len(known))) - set(labels))]
    if missing and len(labels):
        raise DataError(f"the {where} has no row labelled {', '.join(missing)}; provide more rows, or hold out fewer")


def notes_on_names(rows: TableRows, names: Sequence[str] | None) -> list[str]:
    """Return sentences about classes that may not be meant."""
    return [*note_on_unlabelled(rows, names or ()), *notes_on_spelling(rows, names or ())]


def note_on_unlabelled(rows: TableRows, names: Sequence[str]) -> list[str]:
    """Return a sentence about the class -1 beside those from 0 on, which may mean that a row has no label."""
    if set(names) != {str(number) for number in range(NO_CLASS, len(names) - 1)}:
        return []
    return [
        f"{rows.file}: {NO_CLASS} is a class beside {', '.join(names[1:])}; if it stands for no label, remove it "
        f"from task.labels"
    ]


def notes_on_spelling(rows: TableRows, names: Sequence[str]) -> list[str]:
    """Return a sentence about classes whose names differ in capitals and spaces alone, which are classes of their
    own; none if there are none."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(" ".join(name.split()).casefold(), []).append(name)
    found = ["; ".join(map(repr, several)) for several in alike.values() if len(several) > 1]
    if not found:
        return []
    return [
        f"{rows.file}: these names of classes differ in capitals or spaces alone, and are different classes: "
        f"{' and '.join(found[:MOST_LISTED])}; write them alike where they mean the same"
    ]


def class_shares(labels: Sequence[Any], names: Sequence[str] | None) -> dict[str, object]:
    """Return the names of the classes, and the share of each."""
    counts = np.bincount(labels, minlength=len(names or ()))
    return {"labels": names, "label_shares": [round(float(share), 4) for share in counts / counts.sum()]}


# --- judging sets -----------------------------------------------------------------------------------------------------


def judging_classes(
    rows: TableRows, given: JudgingLabels, names: Sequence[str] | None
) -> tuple[list[int | None], list[int] | None]:
    """Return the labels of a judging set as the task's classes, and the merged class of each class."""
    return as_classes(rows.columns["label"], given, list(names or ()), rows.declared)


def as_classes(
    labels: Sequence[Any], given: JudgingLabels, names: list[str], declared: Sequence[str] = ()
) -> tuple[list[int | None], list[int] | None]:
    """Return labels as numbers of the task's classes, or None for no label; and for each class the number of its merged
    class, or None if no classes are merged."""
    where, meanings = given.place, given.meanings or declared
    named = {*names, *given.classes}
    called = {
        label: None if is_none(label, named) else called_by(label, meanings, names, where, numbered=given.numbered)
        for label in dict.fromkeys(labels)
    }
    present = [name for name in dict.fromkeys(called.values()) if name is not None]
    idle = next((name for name in given.classes if name not in (*present, *meanings)), None)
    if idle is not None:
        near = get_close_matches(idle, present, 1)
        raise DataError(
            f"{where}.classes names {idle!r}, and there is no such label; the labels are "
            f"{', '.join(present)}{f'; did you mean {near[0]!r}?' if near else ''}"
        )
    stands = {name: numbers_of_classes(name, given.classes.get(name, (name,)), names, where) for name in present}
    merged = merged_classes(stands, len(names), where)
    first_of: dict[str | None, int | None] = {name: numbers[0] if numbers else None for name, numbers in stands.items()}
    return [first_of.get(called[label]) for label in labels], None if merged == list(range(len(names))) else merged


def called_by(label: Any, meanings: Sequence[str], names: Sequence[str], where: str, *, numbered: bool) -> str:
    """Return a label's name."""
    if not isinstance(label, int) or isinstance(label, bool):
        return str(label)
    known = meanings or (names if numbered and str(label) not in names else ())
    if not known and str(label) not in names:
        raise DataError(
            f"{where}: its labels are numbers ({label}), and their meaning is unknown; set labels: "
            f"[{', '.join(names)}], in order"
        )
    if known and not 0 <= label < len(known):
        raise DataError(
            f"{where}: the label {label} is none of 0 to {len(known) - 1}, which mean {', '.join(known)}; correct "
            f"labels, or the rows"
        )
    return known[label] if known else str(label)


def numbers_of_classes(label: str, classes: Sequence[str], names: Sequence[str], where: str) -> tuple[int, ...]:
    """Return the numbers of the classes that a label stands for; empty if its rows are to be left out."""
    unknown = next((one for one in classes if one not in names), None)
    if unknown is not None:
        alike = {name.casefold(): name for name in names}.get(unknown.casefold(), names[0])
        raise DataError(
            f"{where}: the label {unknown!r} is none of the task's classes {', '.join(names)}; map it to one of "
            f"them, as in classes: {{{label}: {alike}}}"
        )
    return tuple(sorted(names.index(one) for one in classes))


def merged_classes(stands: Mapping[str, Sequence[int]], classes: int, where: str) -> list[int]:
    """Return for each class the number of its merged class, its own if it is not merged; ``stands`` has the classes of
    each label."""
    for (first, ours), (second, theirs) in combinations(stands.items(), 2):
        if ours != theirs and set(ours) & set(theirs):
            raise DataError(
                f"{where}: the labels {first!r} and {second!r} are mapped to different classes that overlap; map "
                "each class of the task to one of them"
            )
    into = {number: numbers[0] for numbers in stands.values() for number in numbers}
    return [into.get(number, number) for number in range(classes)]


# --- models and tables without a recipe -------------------------------------------------------------------------------


def guess_classes(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table with a text and a label would be used; None where labels are amounts."""
    labels = known_labels(columns[chosen.label])
    counts = Counter(labels)
    if (chosen.task is None and is_amount(labels)) or not 2 <= len(counts) <= MOST_CLASSES:
        return None
    names = tuple(str(label) for label in sorted(counts, key=lambda label: (isinstance(label, str), label)))
    most, least = max(counts.values()), min(counts.values())
    shares = f"the largest class has {most / len(labels):.1%} of the rows, the smallest {least / len(labels):.1%}"
    reason = f"{chosen.label} has {len(counts)} different values; {shares}"
    return TableGuess(ANY_TEXT_FITS, reason, UNEQUAL if most > MOST_UNEQUAL * least else EQUAL, names)


READER = Reader(
    columns=(TEXT, PAIR, CLASS),
    label_type=class_type,
    class_names=class_names,
    labels=class_numbers,
    require_labels=require_classes,
    label_facts=class_shares,
    judging_labels=judging_classes,
    names_in_config=names_in_config,
    guess=guess_classes,
    notes=notes_on_names,
)
