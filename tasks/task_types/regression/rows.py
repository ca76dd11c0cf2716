"""Rows of regression: a label is a finite number, or empty in an unlabelled row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures import ModelConfig
from tasks.errors import DataError
from tasks.task_types.common_rows import ANY_TEXT_FITS, are_numbers, is_amount, known_values
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.types import NUMBER, PAIR, TEXT

if TYPE_CHECKING:
    import pyarrow as pa


def number_type() -> pa.DataType:
    """Return the Arrow type of numbers."""
    import pyarrow as pa

    return pa.float64()


def no_class_names(rows: TableRows) -> None:
    """Return None: numbers have no classes."""
    return None


def numbers(rows: TableRows, names: Sequence[str] | None = None) -> list[float | None]:
    """Return labels as finite numbers, or None for a missing one. Raises DataError for anything else."""
    return [read_number(label, rows.file, row) for row, label in enumerate(rows.columns["label"], start=1)]


def read_number(label: Any, file: str, row: int) -> float | None:
    """Return one label as a finite number; ``row`` is counted from 1."""
    if label is None:
        return None
    try:
        value = float(label)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{file}, row {row}: the label {label!r} is not a number; correct it, or set kind: classification"
        ) from error
    if not math.isfinite(value):
        raise DataError(f"{file}, row {row}: the label is {value}; give a finite number")
    return value


def accept_numbers(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Accept any numbers: none of them must occur."""


def no_facts(labels: Sequence[Any], names: Sequence[str] | None) -> dict[str, object]:
    """Return no facts."""
    return {}


def judging_numbers(
    rows: TableRows, given: JudgingLabels, names: Sequence[str] | None
) -> tuple[list[float | None], None]:
    """Return the labels of a judging set as numbers; there are no classes to merge."""
    return numbers(rows), None


def no_names_in_config(config: ModelConfig) -> None:
    """Return None: the names in a regression model's config are transformers' defaults."""
    return None


def guess_numbers(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table whose labels are amounts would be used; None for any other table."""
    labels = known_values(columns[chosen.label])
    if not (is_amount(labels) or (chosen.task is not None and are_numbers(labels))):
        return None
    reason = f"{chosen.label} has {len(set(labels)):,} different numbers, from {min(labels):g} to {max(labels):g}"
    if chosen.pair is not None and chosen.task is None:
        reason += "; for vectors of the texts, which can search, set kind: embedding, if it says how similar they are"
    return TableGuess(ANY_TEXT_FITS, reason, ("pearson", "spearman"))


READER = Reader(
    columns=(TEXT, PAIR, NUMBER),
    label_type=number_type,
    class_names=no_class_names,
    labels=numbers,
    require_labels=accept_numbers,
    label_facts=no_facts,
    judging_labels=judging_numbers,
    names_in_config=no_names_in_config,
    guess=guess_numbers,
)
