"""Rows of multi-label classification: each row has any number of labels.

A label column holds lists, or texts with a separator (``|``, ``;`` or ``,``), or it is several columns of 0 and 1 whose
names are the labels. An empty list, an empty text and a row of zeros mean that no label applies; a missing list or
text, or a row whose columns are all empty, is unlabelled. An empty cell of a csv or tsv is an empty text. Rows are
stored as one number, of which bit c stands for label c.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.errors import DataError
from tasks.metrics.of_label_sets import MOST_LABELS, members
from tasks.task_types.common_rows import names_in_config, names_of_numbers
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.multi_label.printed_lists import list_of_text
from tasks.task_types.types import PAIR, SEVERAL_LABELS, TEXT

if TYPE_CHECKING:
    import pyarrow as pa

SEPARATORS = ("|", ";", ",")
"""Characters between two labels of a text, the likeliest first."""
LISTED_LABELS = 20
"""Labels that a message names."""
FITS = 0.9
"""How well a table fits whose rows have several labels: better than as one class of each text."""
FLAGS = {0: False, 1: True, "0": False, "1": True, "false": False, "true": True}
"""Values of a column of 0 and 1."""
SIZES_DIFFER = 4
"""How many times more frequent than the rarest label the commonest may be, for F1 over all decisions to say enough."""


def set_type() -> pa.DataType:
    """Return the Arrow type of sets."""
    import pyarrow as pa

    return pa.int64()


# --- cells ------------------------------------------------------------------------------------------------------------


def written_labels(rows: TableRows, names: Sequence[str] | None) -> list[list[Any] | None]:
    """Return the labels of each row as they are written, by name or number; None for an unlabelled row. Raises
    DataError for a cell that holds no labels."""
    cells = rows.columns["label"]
    separator = separator_of([cell for cell in cells if isinstance(cell, str)], names)
    empty_is_text = rows.is_delimited and any(isinstance(cell, str) for cell in cells)
    found: list[list[Any] | None] = []
    for row, cell in enumerate(cells, start=1):
        try:
            found.append([] if cell is None and empty_is_text else labels_of_cell(cell, separator))
        except ValueError as error:
            raise DataError(f"{rows.file}, row {row}: {error} (column {rows.names['label']!r})") from None
    return found


def labels_of_cell(cell: Any, separator: str) -> list[Any] | None:
    """Return the labels of one cell. Raises ValueError for one that holds none."""
    if isinstance(cell, Mapping):
        return labels_of_flags(cell)
    if isinstance(cell, str) and cell.strip().startswith("["):
        cell = list_of_text(cell)
    if isinstance(cell, str):
        parts = [part.strip() for part in cell.split(separator)] if cell.strip() else []
        if "" in parts:
            raise ValueError(f"the labels {cell!r} have nothing before or after a separator; remove it")
        return parts
    if cell is None:
        return None
    if not isinstance(cell, (list, tuple)):
        raise ValueError(
            f"the label {cell!r} is no list of labels; give a list, or a text such as 'news{SEPARATORS[0]}sport', or "
            f"set kind: classification if each row has one"
        )
    wrong = next((one for one in cell if not is_label(one)), ())
    if wrong != ():
        raise ValueError(f"the list of labels contains {wrong!r}; give names, or whole numbers from 0 on")
    return [one.strip() if isinstance(one, str) else one for one in cell]


def is_label(value: Any) -> bool:
    """Tell whether a value may name a label."""
    return bool(value.strip()) if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)


def labels_of_flags(cell: Mapping[str, object]) -> list[str] | None:
    """Return the names of the columns that are 1; None if all are empty. Raises ValueError for other values."""
    if all(value is None or value == "" for value in cell.values()):
        return None
    wrong = [(name, value) for name, value in cell.items() if flag(value) is None]
    if wrong:
        name, value = wrong[0]
        shown = "is empty" if value is None or value == "" else f"is {value!r}"
        raise ValueError(f"the column {name!r} {shown} and must be 0 or 1; leave none or all of a row's labels empty")
    return [name for name, value in cell.items() if flag(value)]


def flag(value: Any) -> bool | None:
    """Return whether a cell of 0 and 1 is 1; None for any other."""
    if not isinstance(value, (str, int, float)):
        return None
    return FLAGS.get(value.strip().lower() if isinstance(value, str) else value)


def separator_of(cells: Sequence[str], names: Sequence[str] | None) -> str:
    """Return the character between two labels: with known names the one that leaves fewest unknown parts, else the
    first that occurs."""
    known = set(names or ())
    occurring = [one for one in SEPARATORS if any(one in cell for cell in cells)]
    if not known or not occurring:
        return (occurring or SEPARATORS)[0]
    return min(occurring, key=lambda one: sum(part.strip() not in known for cell in cells for part in cell.split(one)))


# --- the task's own rows ----------------------------------------------------------------------------------------------


def names_of_labels(rows: TableRows) -> list[str]:
    """Return the names of the labels: the columns of 0 and 1, those that the file declares, or the distinct labels,
    sorted."""
    first = next((cell for cell in rows.columns["label"] if isinstance(cell, Mapping)), None)
    written = written_labels(rows, None)
    require_no_bits(rows, written)
    if first is not None or rows.declared:
        names = list(first if first is not None else rows.declared)
    else:
        labels = {label for cell in written for label in cell or ()}
        names = [str(label) for label in sorted(labels, key=lambda label: (isinstance(label, str), label))]
    if not 2 <= len(names) <= MOST_LABELS:
        raise DataError(
            f"{rows.file} has {len(names)} different labels in column {rows.names['label']!r}; 2 to {MOST_LABELS} are "
            f"possible: join rare ones, or set kind: classification if each row has one"
        )
    return names


def require_no_bits(rows: TableRows, written: Sequence[Sequence[Any] | None]) -> None:
    """Raise DataError for lists of 0 and 1 for each label, which would be read as the labels 0 and 1."""
    known = [cell for cell in written if cell]
    lengths, values = {len(cell) for cell in known}, {str(one) for cell in known for one in cell}
    if len(lengths) == 1 and values <= {"0", "1"} and any(len({*cell}) < len(cell) for cell in known):
        raise DataError(
            f"{rows.file}: the lists in column {rows.names['label']!r} have a 0 or a 1 for each of {lengths.pop()} "
            f"labels, which have no names there; give the names of the labels that apply, or a column for each label"
        )


def labels_that_differ_by_case(rows: TableRows, names: Sequence[str] | None) -> list[str]:
    """Return a sentence about labels that are the same but for capital letters."""
    folded = Counter(name.casefold() for name in names or ())
    alike = [name for name in names or () if folded[name.casefold()] > 1]
    told = f"the labels {', '.join(alike[:LISTED_LABELS])} differ by capital letters alone, and are different labels"
    return [f"{rows.file}: {told}; write them alike if they are one"] if alike else []


def set_numbers(rows: TableRows, names: Sequence[str] | None) -> list[int | None]:
    """Return the sets of rows as numbers. Raises DataError for a label that is none of ``names``."""
    known, numbers = list(names or ()), {name: number for number, name in enumerate(names or ())}
    meant = names_of_numbers(rows.declared, known)
    found: list[int | None] = []
    for row, cell in enumerate(written_labels(rows, names), start=1):
        bits = [bit_of(label, numbers, meant) for label in cell or ()]
        wrong = next((label for label, bit in zip(cell or (), bits, strict=True) if bit is None), None)
        if wrong is not None:
            near = get_close_matches(str(wrong), known, 1)
            raise DataError(
                f"{rows.file}, row {row}: the label {wrong!r} is not one of {', '.join(known[:LISTED_LABELS])}"
                f"{f'; did you mean {near[0]!r}?' if near else '; correct it or name it in task.labels'}"
            )
        found.append(None if cell is None else set_of_bits(bits))
    return found


def bit_of(label: Any, numbers: Mapping[str, int], meant: Mapping[int, str]) -> int | None:
    """Return the number of a label, given by its name, or by a number that stands for a name as ``meant``; None for an
    unknown one."""
    written = str(label).strip()
    is_name = isinstance(label, str) and (written in numbers or not written.isdecimal())
    return numbers.get(written if is_name else meant.get(int(written), written))


def set_of_bits(bits: Iterable[int | None]) -> int:
    """Return the set of some labels as one number; a repeated label counts once."""
    found = 0
    for bit in bits:
        found |= 0 if bit is None else 1 << bit
    return found


def bits_of(label: Any) -> list[int]:
    """Return the numbers of the labels of a set."""
    return [] if label is None else [bit for bit in range(int(label).bit_length()) if label >> bit & 1]


def set_without(label: int, numbers: Mapping[int, int]) -> int:
    """Return a set without the labels that are left out, with the new numbers of the others."""
    return set_of_bits(numbers.get(bit) for bit in bits_of(label))


def rarest_labels(labels: Sequence[Any], names: Sequence[str] | None) -> list[int]:
    """Return the rarest label of each row, -1 for none: splits have rows of each in the proportions of all rows, a
    short form of iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011)."""
    counts = Counter(bit for label in labels for bit in bits_of(label))
    return [min(bits_of(label), key=lambda bit: (counts[bit], bit), default=-1) for label in labels]


def require_each_label(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Refuse a split in which a label never occurs, because its F1 would be meaningless."""
    everything = set_of_bits(bit for label in labels for bit in bits_of(label))
    missing = [name for number, name in enumerate(names or ()) if not everything >> number & 1]
    if missing and len(labels):
        raise DataError(
            f"the {where} has no row labelled {', '.join(missing[:LISTED_LABELS])}; provide more rows, or hold "
            f"out fewer"
        )


def label_shares(labels: Sequence[Any], names: Sequence[str] | None) -> dict[str, object]:
    """Return the names of the labels, and the share of the rows that have each."""
    has_CN = members(np.asarray(labels, dtype=np.int64), np.arange(len(names or ())))
    return {"labels": names, "label_shares": [round(float(share), 4) for share in has_CN.mean(1)]}


# --- judging sets, models and tables without a recipe -----------------------------------------------------------------


def judging_sets(rows: TableRows, given: JudgingLabels, names: Sequence[str] | None) -> tuple[list[int | None], None]:
    """Return the labels of a judging set as the task's, by name, or by the mapping in the recipe, in which each label
    stands for one of the task's."""
    several = next((label for label, classes in given.classes.items() if len(classes) != 1), None)
    if several is not None:
        raise DataError(f"{given.place}.classes maps {several!r} to several labels; map it to one of the task's")
    called = {label: classes[0] for label, classes in given.classes.items()}
    meanings = list(given.meanings or rows.declared)
    read = replaced(rows, meanings, called, given, list(names or ()))
    return set_numbers(read, names), None


def replaced(
    rows: TableRows, meanings: Sequence[str], called: Mapping[str, str], given: JudgingLabels, names: Sequence[str]
) -> TableRows:
    """Return rows whose labels have the task's names; digits in a text are a number, unless a label has that name."""

    def name(label: Any) -> Any:
        if isinstance(label, str) and label.isdecimal() and label not in (*names, *called, *meanings):
            label = int(label)
        if isinstance(label, int) and not meanings and not given.numbered:
            raise DataError(
                f"{given.place}: its labels are numbers ({label}), and their meaning is unknown; set labels: to their "
                f"names, in order"
            )
        known = meanings[label] if isinstance(label, int) and 0 <= label < len(meanings) else label
        return called.get(known, known) if isinstance(known, str) else known

    cells = [None if cell is None else [name(label) for label in cell] for cell in written_labels(rows, meanings)]
    return replace(rows, columns={**rows.columns, "label": cells}, declared=())


def guess_sets(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table would be used whose label column holds several labels a row; None where it does not."""
    cells = columns[chosen.label]
    rows = TableRows("the table", {"label": chosen.label}, {"label": cells})
    try:
        written = written_labels(rows, None)
    except DataError:
        return None
    require_no_bits(rows, written)
    try:
        names = names_of_labels(rows)
    except DataError:
        return None
    # a csv has an empty cell for no label, which is read as nothing
    may_be_empty = any(isinstance(cell, str) for cell in cells)
    sizes = [len(cell or ()) for cell in written if cell is not None or may_be_empty]
    if chosen.task is None and (not holds_several(cells, written) or is_aligned(columns, chosen.label)):
        return None
    counts = Counter(label for cell in written for label in set(map(str, cell or ())))
    mean, none = sum(sizes) / max(1, len(sizes)), sum(size == 0 for size in sizes) / max(1, len(sizes))
    reason = f"{len(names)} labels, {mean:.1f} a row on average, none in {none:.0%} of the rows; {form_of(cells)}"
    unequal = max(counts.values(), default=0) > SIZES_DIFFER * max(1, min(counts.values(), default=0))
    metrics = ("micro_f1", "label_macro_f1", "subset_accuracy")
    return TableGuess(FITS, reason + (", of unequal frequency" if unequal else ""), metrics, tuple(names))


def holds_several(cells: Sequence[Any], written: Sequence[Sequence[Any] | None]) -> bool:
    """Tell whether rows really have several labels: some have more than one and, of texts, whose separator may be part
    of a name, at least half of the labels come in several combinations."""
    if any(isinstance(cell, list) for cell in cells):
        return True  # nothing else is learned from lists
    if not any(len(labels or ()) > 1 for labels in written) or not any(isinstance(cell, str) for cell in cells):
        return any(len(labels or ()) > 1 for labels in written)
    combinations = Counter(label for labels in {frozenset(labels or ()) for labels in written} for label in labels)
    return sum(count > 1 for count in combinations.values()) >= len(combinations) / 2


def is_aligned(columns: Mapping[str, Sequence[Any]], label: str) -> bool:
    """Tell whether a column of lists has as many elements as another one in each row, as tags of words have."""
    sizes = {name: list(map(length_of_list, cells)) for name, cells in columns.items()}
    return any(name != label and sizes[name] == sizes[label] and max(sizes[label]) > 1 for name in columns)


def length_of_list(cell: Any) -> int:
    """Return the number of elements of a list, 0 for anything else."""
    return len(cell) if isinstance(cell, list) else 0


def form_of(cells: Sequence[Any]) -> str:
    """Return in words how a column holds several labels."""
    first = next((cell for cell in cells if cell is not None), None)
    if isinstance(first, Mapping):
        return "several columns of 0 and 1"
    if isinstance(first, str):
        return f"texts with {separator_of([cell for cell in cells if isinstance(cell, str)], None)!r} between labels"
    return "lists"


READER = Reader(
    columns=(TEXT, PAIR, SEVERAL_LABELS),
    label_type=set_type,
    class_names=names_of_labels,
    labels=set_numbers,
    require_labels=require_each_label,
    label_facts=label_shares,
    judging_labels=judging_sets,
    names_in_config=names_in_config,
    guess=guess_sets,
    notes=labels_that_differ_by_case,
    strata=rarest_labels,
    classes_of=bits_of,
    renumber=set_without,
)
